// Halting the whole fleet or a part of it, and releasing it.
import { get, request } from "../api.js";
import { html } from "../html.js";
import { address } from "../router.js";
import { at, plural } from "../parts/text.js";
import { names, NOTE } from "./common.js";

/** @type {portal.Field} */
const WHY = { ...NOTE, help: "It is shown wherever an event waits for this." };
const STAYS = "What has started goes on, and failures are still recorded.";

// What a halt would cover.
/** @param {{ groups?: string[] }} body */
export const covered = async (body) => (await request("POST", "/v1/halts", { body: { ...body, plan: true } })).data;

/** @param {api.Halt} halt */
export const covers = ({ machines, events }) => `It covers ${plural(machines, "machine")}, and keeps ${plural(events, "announced event")} from starting now.`;

/** @type {portal.Kind<undefined, api.Status & { halt: api.Halt }>} */
export const fleet = {
  path: () => "/v1/halts",
  resource: false,
  page: () => "/",
  more: async () => ({ ...(await get("/v1/status")).data, halt: await covered({}) }),
  concerned: (none, status) => ({ machines: status.machines, groups: status.groups }),
  verbs: [
    {
      operation: "placeHalt",
      label: "Halt all",
      keyed: false,
      title: () => "Halt all",
      effect: (none, { halt }) => `No event starts in the whole fleet until the halt is released, no matter who has approved it. ${covers(halt)} ${STAYS}`,
      sure: () => "Halt the whole fleet",
      fields: () => [WHY],
    },
  ],
};

/** @type {portal.Kind<undefined, { groups: string[] }>} */
export const part = {
  path: () => "/v1/halts",
  resource: false,
  page: () => "/fleet",
  more: async () => ({ groups: await names("/v1/groups") }),
  verbs: [
    {
      operation: "placeHalt",
      label: "Halt a part",
      keyed: false,
      confirm: "Halt it",
      title: () => "Halt a part of the fleet",
      effect: () => `Until the halt is released, no event starts that names a machine to which all of this applies, no matter who has approved it. ${STAYS}`,
      sure: () => "Halt this part of the fleet",
      fields: (none, { groups }) => [
        { name: "groups", label: "Groups", type: "list", choices: groups, help: "Names, separated by commas." },
        { name: "label", label: "Machines with labels", help: "Such as tier=web,!canary." },
        { name: "host_label", label: "On hosts with labels", help: "Such as row=3." },
        WHY,
      ],
      plan: { path: "/v1/halts", label: "Show what it covers", body: { plan: true }, view: (halt) => html`<p class="preview">${covers(halt)}</p>` },
      needs: { oneOf: ["groups", "label", "host_label"], message: "Name groups or labels. Without any, the whole fleet would be halted." },
    },
  ],
};

/** @type {portal.Kind<api.Halt>} */
export const halt = {
  path: (halt) => address("v1", "halts", halt.id),
  resource: false,
  page: () => "/",
  name: (halt) => `the halt of ${halt.scope}`,
  state: (halt) => `Halted since ${at(halt.at)} by ${halt.by}${halt.note && `: ${halt.note}`}.`,
  concerned: (halt) => ({ machines: halt.machines, events: halt.events }),
  verbs: [
    {
      operation: "releaseHalt",
      label: "Release",
      action: "release",
      keyed: false,
      effect: (halt) =>
        `${halt.events ? plural(halt.events, "event that waits for it starts", "events that wait for it start") : "Announced events can start again"} as soon as the other rules allow.`,
      fields: () => [NOTE],
    },
  ],
};

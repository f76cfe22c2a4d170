// Stopping the whole fleet or a part of it, and going on.
import { get } from "../api.js";
import { address } from "../router.js";
import { at, plural } from "../parts/text.js";
import { names, NOTE } from "./common.js";

/** @type {portal.Field} */
const WHY = { ...NOTE, help: "It is shown wherever an event waits for this." };
const STAYS = "What has started goes on, and failures are still recorded.";

/** @type {portal.Kind<undefined, api.Status>} */
export const fleet = {
  path: () => "/v1/halts",
  resource: false,
  page: () => "/",
  more: async () => (await get("/v1/status")).data,
  concerned: (none, status) => ({ machines: status.machines, groups: status.groups }),
  verbs: [
    {
      operation: "placeHalt",
      label: "Stop all",
      keyed: false,
      title: () => "Stop all",
      effect: () => `No event starts in the whole fleet until the stop is released, no matter who has approved it. ${STAYS}`,
      sure: () => "Stop the whole fleet",
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
      label: "Stop a part",
      keyed: false,
      confirm: "Stop it",
      title: () => "Stop a part of the fleet",
      effect: () => `Until the stop is released, no event starts that names a machine to which all of this applies, no matter who has approved it. ${STAYS}`,
      sure: () => "Stop this part of the fleet",
      fields: (none, { groups }) => [
        { name: "groups", label: "Groups", type: "list", choices: groups, help: "Names, separated by commas." },
        { name: "label", label: "Machines with labels", help: "Such as tier=web,!canary." },
        { name: "host_label", label: "On hosts with labels", help: "Such as row=3." },
        WHY,
      ],
      needs: { oneOf: ["groups", "label", "host_label"], message: "Name groups or labels. Without any, the whole fleet would be stopped." },
    },
  ],
};

/** @type {portal.Kind<api.Halt>} */
export const halt = {
  path: (halt) => address("v1", "halts", halt.id),
  resource: false,
  page: () => "/",
  name: (halt) => `the stop of ${halt.scope}`,
  state: (halt) => `Stopped since ${at(halt.at)} by ${halt.by}${halt.note && `: ${halt.note}`}.`,
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

// What can be done about an event. The service says which of it is possible.
import { get, serviceTime } from "../api.js";
import { address } from "../router.js";
import { nameOf } from "../parts/event-table.js";
import { at, duration } from "../parts/text.js";
import { IGNORE_WINDOWS, names, NOTE, REASON, unique } from "./common.js";

const BY_WINDOWS = ["window", "blackout"];

// A host's maintenance has an event for each group, which belong together.
/**
 * @param {api.EventDetails} event
 * @returns {Promise<api.Event[]>}
 */
async function eventsTogether(event) {
  if (!event.host) return [event];
  try {
    const { data } = await get(`${address("v1", "hosts", event.host)}/explain`);
    return data.plans.map((plan) => plan.events).find((events) => events.some(({ id }) => id === event.id)) ?? [event];
  } catch {
    return [event]; // the host is none of the caller's
  }
}

/** @param {api.Event[]} events */
const concernedEvents = (events) => ({
  machines: unique(events.flatMap((event) => event.machines)),
  groups: unique(events.map((event) => event.group)),
  hosts: unique(events.map((event) => event.host).filter(Boolean)),
});

/** @param {api.EventDetails} event */
const earlier = (event) => {
  const left = Date.parse(event.not_before) - serviceTime();
  return left > 0 ? `, up to ${duration(left)} earlier` : "";
};

/**
 * @typedef {{ operations: string[], holds: api.Hold[], together: api.Event[], moved: string[], hosts: string[] }} More
 * @type {portal.Kind<api.EventDetails, More>}
 */
export const event = {
  path: (event) => address("v1", "events", event.id),
  page: (event) => address("events", event.id),
  name: nameOf,
  state: (event) => `${event.held || event.status}${event.status === "Scheduled" ? `, NotBefore ${at(event.not_before)}` : ""}`,
  more: async (event) => {
    const { data } = await get(`${address("v1", "events", event.id)}/explain`);
    const moved = data.advice.find((advice) => advice.kind === "finish" && advice.event === event.id)?.moved ?? [];
    const { operations, holds } = data;
    return { operations, holds, together: await eventsTogether(event), moved, hosts: moved.length ? await names("/v1/hosts") : [] };
  },
  concerned: (event, { together }) => concernedEvents(together),
  verbs: [
    {
      operation: "approveEvent",
      label: "Approve",
      action: "approve",
      offered: (event) => !event.approved,
      concerned: (event) => concernedEvents([event]),
      effect: (event) => `It starts as soon as nothing else holds it, instead of at ${at(event.not_before)}${earlier(event)}.`,
      fields: (event, more, session) => (session.limited ? [] : [{ ...IGNORE_WINDOWS, query: true }]),
    },
    {
      operation: "approveEvent",
      label: "Ignore windows",
      action: "approve?ignore_windows=true",
      offered: (event, { holds }, session) => event.approved && !session.limited && holds.some(({ kind }) => BY_WINDOWS.includes(kind)),
      concerned: (event) => concernedEvents([event]),
      title: (event) => `Let ${nameOf(event)} ignore windows and blackouts`,
      confirm: "Ignore them",
      effect: (event, { holds }) => `It is approved, and starts as soon as nothing else holds it, although ${holds.find(({ kind }) => BY_WINDOWS.includes(kind))?.message}.`,
    },
    {
      operation: "postponeEvent",
      label: "Postpone",
      action: "postpone",
      effect: (event, { together }) =>
        `NotBefore moves from ${at(event.not_before)} to a later time, as far and as often as the policy of the group allows, and into a maintenance window.${
          together.length > 1 ? " All events of this maintenance move together." : ""
        }`,
      fields: () => [
        { name: "by", label: "By how much", type: "duration" },
        { name: "until", label: "or until (UTC)", type: "instant" },
      ],
    },
    {
      operation: "reportReady",
      label: "Report ready",
      action: "ready",
      confirm: "Report it",
      title: (event) => `Report whether a machine is ready for ${nameOf(event)}`,
      concerned: (event) => ({ groups: [event.group] }),
      effect: () => "Use this for a machine that does not report it itself. Nothing starts because of it.",
      fields: (event) => [
        { name: "machine", label: "Machine", type: "choice", choices: [...event.machines.filter((name) => !event.ready.includes(name)), ...event.ready] },
        { name: "ready", label: "It is no longer ready", type: "check", means: false },
        NOTE,
      ],
    },
    {
      operation: "cancelEvent",
      label: "Cancel",
      confirm: "Cancel the event",
      action: "cancel",
      effect: (event, { together }) =>
        `It does not happen, and guests no longer see it.${together.length > 1 ? ` All ${together.length} events of this maintenance are cancelled.` : ""}`,
      fields: () => [REASON],
    },
    {
      operation: "retryEvent",
      label: "Retry",
      action: "retry",
      effect: () => "The driver carries it out again. Choose this if it did not happen.",
    },
    {
      operation: "finishEvent",
      label: "Finish",
      action: "finish",
      concerned: (event) => concernedEvents([event]),
      effect: () => "It counts as carried out, and is over for its guests. Nothing more is done to the machines.",
      fields: (event, { moved, hosts }) => [
        { ...REASON, required: true },
        ...moved.map((name) => /** @type {portal.Field} */ ({ name: `moved.${name}`, within: "moved", key: name, label: `Host that ${name} is on now`, choices: hosts })),
      ],
    },
    {
      operation: "abandonEvent",
      label: "Abandon",
      action: "abandon",
      concerned: (event) => concernedEvents([event]),
      effect: () => "It did not happen, is not tried again, and is over for its guests. Its machines stay as they are.",
      fields: () => [{ ...REASON, required: true }],
    },
  ],
};

// What can be done to a whole group.
import { html } from "../html.js";
import { get, withQuery } from "../api.js";
import { address } from "../router.js";
import { nameOf } from "../parts/event-table.js";
import { at, compact, plural } from "../parts/text.js";
import { announce, BLACKOUTS_HELP, NOTE, REASON, typesThat, WINDOWS_HELP } from "./common.js";
import { covered, covers } from "./halts.js";
import { startRollout } from "./rollouts.js";

/** @param {string} name */
const number = (name) => Number(/(\d+)$/.exec(name)?.[1] ?? 0);

/** @type {(group: api.Group) => portal.Field[]} */
const operatorsPolicy = (group) => [
  { name: "windows", label: "Windows", type: "list", separator: ";", value: group.windows.join("; "), cleared: [], help: `When maintenance may start. ${WINDOWS_HELP}` },
  { name: "blackouts", label: "Blackouts", type: "list", separator: ";", value: group.blackouts.join("; "), cleared: [], help: BLACKOUTS_HELP },
  { name: "may_postpone", label: "May postpone", value: group.may_postpone ?? "", cleared: null, help: "By how much and how often events may be postponed, such as 2h, twice." },
  { name: "over_when", label: "Events are over", value: group.over_when ?? "", choices: ["heard", "carried-out"], cleared: null, help: "heard: once its machines have polled again. carried-out: at once. Empty: as the service does it." },
  { name: "back_within", label: "Machines are back within", type: "duration", value: group.back_within === null ? "" : compact(group.back_within), cleared: null, help: "10s to 1h. Empty: 10m. Who has not polled again by then is not back." },
];

/** @type {(group: api.Group) => portal.Field[]} */
const terminatePolicy = (group) => [
  { name: "terminate_notice", label: "Notice before a deletion", type: "duration", value: group.terminate_notice === null ? "" : compact(group.terminate_notice), cleared: null, help: "5m to 15m. Empty: deletions are not announced." },
  { name: "image_notice", label: "Notice before a reimage", type: "duration", value: group.image_notice === null ? "" : compact(group.image_notice), cleared: null, help: "5m to 15m. Empty: machines cannot be reimaged." },
];

/** @type {(group: api.Group, more: object, session: api.Session) => portal.Field[]} */
const policyFields = (group, more, session) => [
  ...(session.limited ? [] : operatorsPolicy(group)),
  { name: "auto_approve", label: "Start without approval", type: "list", value: group.auto_approve.join(", "), choices: typesThat(session, "by_user"), cleared: [], help: "Types of user events, separated by commas." },
  { name: "all_instances_down", label: "Start user events without approval while all machines are down", type: "check", value: group.all_instances_down, cleared: false },
  { name: "event_grid", label: "Publish events to Event Grid and Azure Resource Graph", type: "check", value: group.event_grid, cleared: false },
  { name: "user_event_limit", label: "User events at a time", type: "number", value: group.user_event_limit ?? "", cleared: null, help: "Empty for any number." },
  ...(group.kind === "scale-set" ? terminatePolicy(group) : []),
];

/** @param {{ of: api.CancelledEvents }} props */
const Cancelled = ({ of }) => html`
  <section class="preview" aria-live="polite">
    <p>${of.events.length ? `${plural(of.events.length, "event")} would be cancelled:` : "No event would be cancelled."}</p>
    <ul>${of.events.map((event) => html`<li key=${event.id}>${nameOf(event)} in ${event.group}, NotBefore ${at(event.not_before)}</li>`)}</ul>
    ${[...of.refused, ...of.notes].map((text) => html`<p>${text}</p>`)}
  </section>
`;

/** @type {portal.Kind<api.Group, { machines: string[], spot: string[], halt?: any }>} */
export const group = {
  path: (group) => address("v1", "groups", group.name),
  page: (group) => address("groups", group.name),
  name: (group) => group.name,
  state: (group) => `It is ${group.enabled ? "enabled" : "not enabled"}, with ${group.events.length ? plural(group.events.length, "active event") : "no active event"}.`,
  more: async (group) => {
    const { data } = await get(withQuery("/v1/machines", { group: group.name, gone: "false" }));
    return { machines: data.map(({ name }) => name), spot: data.filter(({ spot }) => spot).map(({ name }) => name) };
  },
  concerned: (group, { machines }) => ({ groups: [group.name], machines }),
  verbs: [
    startRollout((group) => ({ groups: [group.name] })),
    {
      operation: "setPolicy",
      label: "Change the policy",
      action: "policy",
      method: "PATCH",
      keyed: false,
      confirm: "Change it",
      title: (group) => `Change the policy of ${group.name}`,
      effect: () => "It applies at once, also to events that are announced already. The next fleet file that is applied sets it to what the file says.",
      fields: policyFields,
    },
    {
      operation: "scheduleEvent",
      label: "Announce an event",
      path: () => "/v1/events",
      confirm: "Announce it",
      offered: (group) => group.machines.length,
      title: (group) => `Announce an event to ${group.name}`,
      concerned: (group) => ({ groups: [group.name] }),
      effect: () => "It is announced to the group, and starts when it is approved or its notice has passed. All its machines have to be in one update domain.",
      fields: (group, { machines }, session) => announce([], machines, session),
    },
    {
      operation: "cancelEvents",
      label: "Cancel all events",
      path: () => "/v1/events/cancel",
      keyed: false,
      confirm: "Cancel them",
      offered: (group) => group.events.length,
      title: (group) => `Cancel the events of ${group.name}`,
      concerned: (group) => ({ groups: [group.name] }),
      effect: (group, more, session) => `Those that have not started do not happen, and guests no longer see them.${session.limited ? " Only events that users have requested are cancelled." : ""}`,
      body: (group, session) => ({ group: group.name, ...(session.limited && { source: "User" }) }),
      plan: { path: "/v1/events/cancel", label: "Show the events", body: { plan: true }, view: (plan) => html`<${Cancelled} of=${plan} />` },
      fields: () => [REASON],
    },
    {
      operation: "scaleIn",
      label: "Scale in",
      action: "scale-in",
      offered: (group) => group.kind === "scale-set" && group.machines.length,
      typed: true,
      title: (group) => `Delete machines of ${group.name}`,
      concerned: (group, { machines }) => ({ groups: [group.name], machines: [...machines].sort((a, b) => number(b) - number(a)) }),
      effect: () => "Machines are deleted in this order, those with the highest numbers first. Each is announced as a Terminate first if the policy of the group requires that.",
      fields: () => [
        { name: "count", label: "How many to delete", type: "number", min: 1 },
        { name: "to", label: "or how many to keep", type: "number" },
      ],
    },
    {
      operation: "evictGroup",
      label: "Evict spot machines",
      action: "evict",
      offered: (group) => group.spot,
      sure: (group) => `Evict all spot machines of ${group.name}`,
      title: (group) => `Evict all spot machines of ${group.name}`,
      confirm: "Evict them",
      concerned: (group, { spot }) => ({ groups: [group.name], machines: spot }),
      effect: () => "Each is announced to the group as a Preempt, and then stopped. They can be restored afterwards.",
    },
    {
      operation: "placeHalt",
      label: "Halt",
      path: () => "/v1/halts",
      keyed: false,
      title: (group) => `Halt ${group.name}`,
      more: async (group) => ({ halt: await covered({ groups: [group.name] }) }),
      effect: (group, { halt }) => `No event of the group starts until the halt is released, no matter who has approved it. ${covers(halt)} What has started goes on, and failures are still recorded.`,
      sure: (group) => `Halt all machines of ${group.name}`,
      body: (group) => ({ groups: [group.name] }),
      fields: () => [{ ...NOTE, help: "It is shown wherever an event waits for this." }],
    },
    {
      operation: "disableGroup",
      label: "Disable",
      action: "disable",
      offered: (group) => group.enabled,
      title: (group) => `Disable Scheduled Events for ${group.name}`,
      effect: () => "Its machines are not shown events, and are not waited for, until one of them asks again.",
    },
  ],
};

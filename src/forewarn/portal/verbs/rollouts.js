// Starting a rollout, and what can be done to one.
import { html } from "../html.js";
import { get, withQuery } from "../api.js";
import { address } from "../router.js";
import { nameOf } from "../parts/event-table.js";
import { RolloutPlan } from "../parts/rollout-plan.js";
import { plural } from "../parts/text.js";
import { DESCRIPTION, DURATION, IGNORE_WINDOWS, names, NOTICE, REASON, SHORT_NOTICE, TICKET, typesThatKeep, unique, WINDOWS_HELP, within } from "./common.js";

const NAMES = "Names or patterns, separated by commas.";
const SELECTORS = "For example: tier=web,!canary. Separate several with semicolons.";
/**
 * @param {api.Sent} name
 * @param {string} label
 * @param {string} help
 * @param {Partial<portal.Field>} [more]
 * @returns {portal.Field}
 */
const list = (name, label, help, more = {}) => ({ name, label, type: "list", help, ...more });
/**
 * @param {api.Sent} name
 * @param {string} label
 */
const selectors = (name, label) => list(name, label, SELECTORS, { separator: ";" });
/**
 * @param {api.Sent} name
 * @param {string} label
 * @param {string[]} choices
 * @returns {portal.Field}
 */
const choice = (name, label, ...choices) => ({ name, label, type: "choice", choices, byDefault: choices[0] });

/**
 * @param {{ groups?: string[] }} chosen
 * @param {{ groups: string[], hosts: string[] }} choices
 * @param {api.Session} session
 * @returns {portal.Field[]}
 */
const startFields = (chosen, { groups, hosts }, session) => [
  { name: "type", label: "Type", type: "choice", choices: [...typesThatKeep(session), "live-migration", "evacuate-work-return"] },
  list("groups", "Groups", "Names, separated by commas.", { choices: groups, value: (chosen.groups ?? []).join(", ") }),
  list("hosts", "Hosts", `${NAMES} Without groups, labels and machines, these hosts are maintained one after the other.`, { choices: hosts }),
  NOTICE,
  DESCRIPTION,
  ...within(
    "Select by label or machine, and leave out",
    selectors("labels", "Machines with labels"),
    selectors("host_labels", "Hosts with labels"),
    list("machines", "Machines", NAMES),
    list("exclude_groups", "Leave out groups", "Names, separated by commas.", { choices: groups }),
    selectors("exclude_labels", "Leave out machines with labels"),
    list("exclude_machines", "Leave out machines", `${NAMES} A host that has one of them is left out as a whole.`),
    list("exclude_hosts", "Leave out hosts", NAMES, { choices: hosts }),
    selectors("exclude_host_labels", "Leave out hosts with labels"),
  ),
  ...within(
    "Order, waves and pauses",
    { name: "at_once", label: "Groups or hosts at a time", type: "number", value: 1, min: 1 },
    list("order_by", "Order by labels", "Names of labels, separated by commas."),
    list("canary", "First", "Hosts or groups that go first, or how many."),
    list("waves", "Waves", "How many hosts or groups are done after each wave, such as 1, 5%, 25%, 100%."),
    choice("pause_after", "Pause after", "nothing", "canary", "waves"),
    { name: "max_failures", label: "Pause if more steps have failed than", type: "number" },
  ),
  ...within(
    "Windows and deadline",
    list("windows", "Windows", `When steps may start. ${WINDOWS_HELP}`, { separator: ";" }),
    { name: "lasts", label: "How long a step takes", type: "duration", help: "The plan assumes 10m if this is not given." },
    { name: "must_end_in_window", label: "Start no step that would not end in its window", type: "check" },
    { name: "deadline", label: "Deadline (UTC)", type: "instant", help: "Steps that have not started by then are not started." },
    IGNORE_WINDOWS,
  ),
  ...within(
    "Checks between the steps",
    { name: "bake", label: "Wait after each step", type: "duration" },
    { name: "gate_http", label: "URL that has to answer with 2xx" },
    { name: "gate_command", label: "Gate command that has to exit with 0", help: "Its name in the service's settings." },
    { name: "gate_timeout", label: "Wait for the gate at most", type: "duration", help: "Then the rollout pauses itself; by default after 10m." },
  ),
  ...within(
    "More",
    choice("conflicts", "Hosts with machines of several update domains of a group", "refuse", "split", "skip", "evacuate"),
    choice("work_by", "Who does the work of an evacuate-work-return", "operator", "driver"),
    DURATION,
    TICKET,
    SHORT_NOTICE,
    { name: "allow_overlap", label: "Start it although another rollout is still to do the same", type: "check" },
  ),
];

// The verb that starts a rollout, for what a page is about.
/**
 * @template [Of=undefined]
 * @param {(of: Of) => { groups?: string[] }} chosen
 * @returns {portal.Verb<Of>}
 */
export const startRollout = (chosen = () => ({})) => ({
  operation: "startRollout",
  label: "Start a rollout",
  path: () => "/v1/rollouts",
  title: () => "Start a rollout",
  confirm: "Start it",
  effect: () => "Machines are affected one update domain after the other, each announced with an event. The plan comes first.",
  concerned: () => ({}),
  plan: { path: "/v1/rollouts/plan?steps=8", label: "Show the plan", view: (plan) => html`<${RolloutPlan} of=${plan} />` },
  more: async () => ({ groups: await names("/v1/groups"), hosts: await names("/v1/hosts") }),
  fields: (resource, choices, session) => startFields(chosen(resource), choices, session),
});

/** @type {portal.Kind<undefined>} */
export const rollouts = {
  resource: false,
  page: () => "/rollouts",
  verbs: [startRollout()],
};

/** @type {portal.Kind<api.RolloutReport, { announced: string[], lanes?: string[], lane?: string }>} */
export const rollout = {
  path: (rollout) => address("v1", "rollouts", rollout.id),
  page: (rollout) => address("rollouts", rollout.id),
  name: (rollout) => `rollout ${rollout.id.slice(0, 8)} (${rollout.type}, ${rollout.selection})`,
  state: (rollout) => `It is ${rollout.state}, with ${rollout.steps_done} of ${plural(rollout.steps_total, "step")} done.`,
  more: async (rollout) => {
    const { data } = await get(withQuery("/v1/events", { rollout: rollout.id, status: "Scheduled" }));
    return { announced: data.map(nameOf) };
  },
  concerned: (rollout, { announced }) => ({ events: announced, machines: rollout.machines, groups: rollout.groups, hosts: rollout.hosts }),
  verbs: [
    {
      operation: "pauseRollout",
      label: "Pause",
      action: "pause",
      offered: (rollout) => rollout.state === "running" || rollout.state === "blocked",
      effect: (rollout, { announced }) =>
        `No further step is announced until it is resumed.${
          announced.length ? ` ${plural(announced.length, "announced event still happens unless it is", "announced events still happen unless they are")} withdrawn.` : ""
        }`,
      fields: () => [{ name: "withdraw", label: "Withdraw events that have not started; they are announced again after the pause", type: "check" }, REASON],
    },
    {
      operation: "resumeRollout",
      label: "Resume",
      action: "resume",
      offered: (rollout) => rollout.state === "paused" || rollout.state === "blocked",
      effect: (rollout) => `It goes on with ${plural(rollout.steps_total - rollout.steps_done, "step")}, and announces again what was cancelled.`,
    },
    {
      operation: "skipRolloutSteps",
      label: "Skip",
      action: "skip",
      offered: (rollout) => !rollout.ended_at && rollout.state !== "aborting",
      confirm: "Skip them",
      title: (rollout) => `Skip steps of rollout ${rollout.id.slice(0, 8)}`,
      effect: () => "Steps that have not started are left out, and count as over. Events that are announced for them already are withdrawn.",
      more: async (rollout, { lane = "" }) => {
        const { data } = await get(withQuery(`${address("v1", "rollouts", rollout.id)}/steps`, { state: "waiting", limit: 500 }));
        return { lanes: unique(data.map((step) => step.lane)), lane };
      },
      fields: (rollout, { lanes, lane }) => [
        list("lanes", "Groups or hosts", "All steps of these that have not started; names, separated by commas.", { choices: lanes, value: lane }),
        { name: "steps", label: "or numbers of steps", type: "numbers", help: "As in the table of steps, separated by commas." },
        REASON,
      ],
    },
    {
      operation: "abortRollout",
      label: "Abort",
      action: "abort",
      offered: (rollout) => !rollout.ended_at && rollout.state !== "aborting",
      effect: (rollout, { announced }) =>
        `It cannot be resumed. ${plural(rollout.steps_total - rollout.steps_done, "step is", "steps are")} left undone${
          announced.length ? `, and ${plural(announced.length, "event that has not started is", "events that have not started are")} cancelled` : ""
        }.`,
      sure: () => "End this rollout for good",
      fields: () => [REASON],
    },
  ],
};

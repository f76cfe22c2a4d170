// What the verbs of several kinds have in common: fields of their forms, and what is read for their confirmations.
import { get, withQuery } from "../api.js";

const MOST_NAMES = 500; // that a field proposes

/** @type {portal.Field} */
export const NOTE = { name: "note", label: "Note", help: "It is recorded in the history." };
/** @type {portal.Field} */
export const REASON = { name: "reason", label: "Reason", help: "It is recorded in the history." };
/** @type {portal.Field} */
export const NOTICE = { name: "notice", label: "Notice", type: "duration", help: "From the announcement to the start; by default, the minimum notice of the type." };
/** @type {portal.Field} */
export const NOT_BEFORE = { name: "not_before", label: "Not before (UTC)", type: "instant", help: "Instead of a notice." };
/** @type {portal.Field} */
export const SHORT_NOTICE = { name: "short_notice", label: "Allow less than the minimum notice", type: "check" };
/** @type {portal.Field} */
export const IGNORE_WINDOWS = { name: "ignore_windows", label: "Ignore maintenance windows and blackouts", type: "check" };
/** @type {portal.Field} */
export const DESCRIPTION = { name: "description", label: "Description", help: "Guests see it." };
/** @type {portal.Field} */
export const DURATION = { name: "duration", label: "Seconds that the impact lasts", type: "number", min: -1, help: "0 for no impact, -1 if it is not known. Guests see it." };
/** @type {portal.Field} */
export const TICKET = { name: "ticket", label: "Ticket", help: "Your reference, such as a change request. Guests do not see it." };
export const WINDOWS_HELP = "For example: sat,sun 22:00-04:00 Europe/Berlin. Separate several with semicolons.";
export const BLACKOUTS_HELP = "When maintenance may not start. For example: 2026-12-20 to 2027-01-06 Europe/Berlin. Separate several with semicolons.";

// The names of the event types with a trait, such as "by_user".
/**
 * @param {api.Session} session
 * @param {"by_user" | "host_maintenance" | "relocates" | "deletes"} trait
 */
export const typesThat = (session, trait) => session.event_types.filter((type) => type[trait]).map(({ name }) => name);

/** @param {api.Session} session */
export const typesThatKeep = (session) => session.event_types.filter(({ deletes }) => !deletes).map(({ name }) => name);

// What a failure can be shown as; first, what it is without a choice.
/**
 * @param {api.Session} session
 * @returns {portal.Field}
 */
export const failureType = (session) => {
  const choices = new Set([...typesThat(session, "relocates"), ...typesThatKeep(session)]);
  return { name: "type", label: "What guests are shown", type: "choice", choices: [...choices] };
};

/** @param {string[]} names */
export const unique = (names) => [...new Set(names)].sort();

/** @param {portal.Field[]} fields */
export const rare = (...fields) => fields.map((field) => ({ ...field, section: "More" }));

/**
 * @param {string} section
 * @param {portal.Field[]} fields
 */
export const within = (section, ...fields) => fields.map((field) => ({ ...field, section }));

// Names to choose from; whoever may not see them, or has more of them, writes the name.
/**
 * @param {"/v1/machines" | "/v1/groups" | "/v1/hosts"} list
 * @param {Record<string, unknown>} filters
 */
export async function names(list, filters = {}) {
  try {
    return (await get(withQuery(list, { ...filters, limit: MOST_NAMES }))).data.map(({ name }) => name);
  } catch {
    return [];
  }
}

// The form that announces any event, for some machines.
/**
 * @param {string[]} machines
 * @param {string[]} choices
 * @param {api.Session} session
 * @returns {portal.Field[]}
 */
export const announce = (machines, choices, session) => [
  { name: "type", label: "Type", type: "choice", choices: session.event_types.map(({ name }) => name) },
  { name: "machines", label: "Machines", type: "list", required: true, value: machines.join(", "), choices, help: "Machines of one group, separated by commas." },
  NOTICE,
  DESCRIPTION,
  { name: "source", label: "Source", type: "choice", choices: session.limited ? ["User"] : ["Platform", "User"], help: "User if a user of the machine has requested it." },
  ...rare(NOT_BEFORE, DURATION, TICKET, SHORT_NOTICE),
  ...(session.limited ? [] : rare(IGNORE_WINDOWS)),
];

// What became of a machine in an event that is over: was it warned, who approved, for how long was it away, is it back?
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Actor, EventLink } from "./links.js";
import { at, duration } from "./text.js";

const LATEST = 5; // events

/**
 * @param {api.Event} event
 * @param {string} machine
 */
export function stoodStill(event, machine) {
  if (!event.started_at) return "";
  return Object.hasOwn(event.away, machine) ? `${event.away[machine]} s` : "not measured";
}

/**
 * @param {api.EventDetails} event
 * @param {string} machine
 */
export function back(event, machine) {
  if (!event.started_at) return "";
  const late = event.not_back.includes(machine) ? ", but not when the event was over" : "";
  return event.back.includes(machine) ? `yes${late}` : "no: it has not polled since";
}

/**
 * @param {api.EventDetails} event
 * @param {string} machine
 */
function warned(event, machine) {
  if (event.not_warned?.includes(machine)) return "no: it was not shown before it started";
  const shown = Object.hasOwn(event.seen_by, machine) && event.seen_by[machine];
  if (!shown || !event.started_at) return "not known";
  return `yes: shown ${at(shown)}, ${duration(Date.parse(event.started_at) - Date.parse(shown))} before`;
}

/** @param {{ event: api.Event, machine: string }} props */
function Row({ event: { id }, machine }) {
  const { data: event } = useResource(address("v1", "events", id));
  if (!event) return null;
  return html`
    <tr>
      <td><${EventLink} id=${id}>${event.type} <code>${id.slice(0, 8)}</code><//></td>
      <td data-label="started">${at(event.started_at)}</td>
      <td data-label="warned">${warned(event, machine)}</td>
      <td data-label="approved by">${event.approved ? html`<${Actor} name=${event.approved.by} /> <span class="quiet">${at(event.approved.at)}</span>` : "nobody"}</td>
      <td data-label="stood still">${stoodStill(event, machine)}</td>
      <td data-label="back">${back(event, machine)}</td>
    </tr>
  `;
}

// The latest events that have disturbed a machine, and are over.
/** @param {{ machine: string, group: string }} props */
export function LookingBack({ machine, group }) {
  const events = useResource(withQuery("/v1/events", { machine, group, status: "Finished", limit: LATEST }));
  if (!events.data?.length) return null;
  return html`
    <table class="rows stacked">
      <caption>What has happened to it</caption>
      <thead><tr><th>Event</th><th>Started</th><th>Warned</th><th>Approved by</th><th>Stood still</th><th>Back</th></tr></thead>
      <tbody>${events.data.map((event) => html`<${Row} key=${event.id} event=${event} machine=${machine} />`)}</tbody>
    </table>
    ${events.next && html`<p><${Link} to=${withQuery("/events", { machine, past: "true" })}>All of its events<//></p>`}
  `;
}

// Events as a table: what, whom, in which state, and when.
import { Component } from "preact";
import { html } from "../html.js";
import { useGradually, useNow } from "../hooks.js";
import { address } from "../router.js";
import { Badge, When } from "./basics.js";
import { Explained } from "./explanation.js";
import { Actor, Cause, EventLink, GroupLink, MachineLink, Several } from "./links.js";
import { listed } from "./text.js";

/** @type {Record<string, string>} */
export const STATES = { Scheduled: "scheduled", Started: "started" };

/** @param {api.Event} event */
export const stateOf = (event) => (event.held ? "held" : (STATES[event.status] ?? "over"));

/** @param {{ type: string, machines: string[] }} event */
export const nameOf = (event) => `${event.type} of ${listed(event.machines)}`;

// How much of the notice has passed.
/** @param {{ event: api.Event }} props */
function Notice({ event }) {
  const now = useNow();
  const [from, to] = [Date.parse(event.raised_at), Date.parse(event.not_before)];
  if (event.status !== "Scheduled" || !(to > from)) return null;
  const part = Math.min(1, Math.max(0, (now - from) / (to - from)));
  return html`<meter class="notice" min="0" max="1" value=${part} aria-label="part of the notice that has passed" />`;
}

/**
 * @param {api.Event} event
 * @param {api.Event} [other]
 */
const together = (event, other) => Boolean(event.host && other?.host === event.host && other.cause === event.cause);

// A row, which is made again only if its event has changed.
/** @extends {Component<{ event: api.Event, explained?: boolean, joined?: boolean }>} */
class Row extends Component {
  /** @param {object} next */
  shouldComponentUpdate(next) {
    return JSON.stringify(next) !== JSON.stringify(this.props);
  }

  /** @param {{ event: api.Event, explained?: boolean, joined?: boolean }} props */
  render({ event, explained, joined }) {
    return html`
      <tr>
        <td><${EventLink} id=${event.id}>${event.type} <code>${event.id.slice(0, 8)}</code><//></td>
        <td><${Several} of=${event.machines} as=${MachineLink} /></td>
        <td><${GroupLink} name=${event.group} /></td>
        <td>
          <${Badge} kind=${stateOf(event)}>${event.held || event.status}<//>
          ${event.approved && html` <small>approved by <${Actor} name=${event.approved.by} /></small>`}
        </td>
        <td>
          <${When} instant=${event.ended_at ?? (event.status === "Started" ? event.started_at : event.not_before)} />
          <${Notice} event=${event} />
        </td>
        <td>${event.description || event.ticket || html`<${Cause} of=${event.cause} />`}</td>
        ${explained &&
        html`<td class="reason">${joined ? "starts together with the one above" : html`<${Explained} of=${address("v1", "events", event.id)} />`}</td>`}
      </tr>
    `;
  }
}

// `explained`: whether each row also says what the event waits for.
/** @param {{ events: api.Event[], caption: portal.Children, explained?: boolean }} props */
export function EventTable({ events, caption, explained }) {
  const shown = events.slice(0, useGradually(events.length));
  return html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      <thead>
        <tr><th>Event</th><th>Machines</th><th>Group</th><th>State</th><th>When</th><th>Why</th>${explained && html`<th>What it waits for</th>`}</tr>
      </thead>
      <tbody>
        ${shown.map((event, n) => html`<${Row} key=${event.id} event=${event} explained=${explained} joined=${together(event, shown[n - 1])} />`)}
      </tbody>
    </table>
  `;
}

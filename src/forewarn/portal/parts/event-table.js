// Events as a table: what, whom, in which state, and when.
import { Component } from "preact";
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { useGradually, useNow } from "../hooks.js";
import { address } from "../router.js";
import { Badge, When } from "./basics.js";
import { Explained } from "./explanation.js";
import { Actor, Cause, EventLink, GroupLink, HostLink, MachineLink, Several } from "./links.js";
import { Head } from "./list.js";
import { listed, naturally, plural, shortly } from "./text.js";

/** @type {portal.Column[]} */
export const EVENT_COLUMNS = [{ title: "Event" }, { title: "Machines" }, { title: "Group" }, { title: "State" }, { title: "When", order: "not_before" }, { title: "Why" }];
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

// Events next to each other that start and end together, as one maintenance each, by group; the others alone.
/** @param {api.Event[]} events */
export function maintenances(events) {
  /** @type {api.Event[][]} */
  const together = [];
  for (const event of events) {
    if (event.joint && together.at(-1)?.[0].joint === event.joint) together.at(-1)?.push(event);
    else together.push([event]);
  }
  return together.map((events) => events.sort((a, b) => naturally(a.group, b.group)));
}

/** @param {{ event: api.Event }} props */
const Starts = ({ event }) => html`
  <td>
    <${When} instant=${event.ended_at ?? (event.status === "Started" ? event.started_at : event.not_before)} />
    <${Notice} event=${event} />
  </td>
  <td>${event.description || event.ticket || html`<${Cause} of=${event.cause} />`}</td>
`;

// The maintenance of a host, which folds out to its events.
/** @param {{ events: api.Event[], explained?: boolean, own?: Own }} props */
function Maintenance({ events, explained, own }) {
  const [open, setOpen] = useState(false);
  const event = events.find(({ held }) => held) ?? events[0];
  const missing = events.filter((one) => one.status === "Scheduled" && one.listed && !one.approved);
  return html`
    <tr>
      <td>${event.type} of host <${HostLink} name=${event.host} />
        <button class="plain" aria-expanded=${open} onClick=${() => setOpen(!open)}>${plural(events.length, "event")}</button></td>
      <td><${Several} of=${events.flatMap((one) => one.machines)} as=${MachineLink} /></td>
      <td><${Several} of=${events.map((one) => one.group)} as=${GroupLink} /></td>
      <td>
        <${Badge} kind=${stateOf(event)}>${event.held || event.status}<//>
        ${missing.length > 0 && html` <small>not approved by <${Several} of=${missing.map((one) => one.group)} as=${GroupLink} /></small>`}
      </td>
      <${Starts} event=${event} />
      ${explained && html`<td class="reason"><${Explained} of=${address("v1", "events", event.id)} />${own && html`<small>not before ${shortly(event.not_before)}; fold out its events to see what you can do</small>`}</td>`}
    </tr>
    ${open && events.map((one) => html`<${Row} key=${one.id} event=${one} explained=${explained} own=${own} part />`)}
  `;
}

// A row, which is made again only if its event has changed. `part`: of a maintenance, which says what it waits for.
/** @typedef {(event: api.Event) => portal.Children} Own */
/** @extends {Component<{ event: api.Event, explained?: boolean, part?: boolean, own?: Own }>} */
class Row extends Component {
  /** @param {object} next */
  shouldComponentUpdate(next) {
    return JSON.stringify(next) !== JSON.stringify(this.props);
  }

  /** @param {{ event: api.Event, explained?: boolean, part?: boolean, own?: Own }} props */
  render({ event, explained, part, own }) {
    return html`
      <tr class=${part ? "part" : undefined}>
        <td><${EventLink} id=${event.id}>${event.type} <code>${event.id.slice(0, 8)}</code><//></td>
        <td><${Several} of=${event.machines} as=${MachineLink} /></td>
        <td><${GroupLink} name=${event.group} /></td>
        <td>
          <${Badge} kind=${stateOf(event)}>${event.held || event.status}<//>
          ${event.approved && html` <small>approved by <${Actor} name=${event.approved.by} /></small>`}
        </td>
        <${Starts} event=${event} />
        ${explained && html`<td class="reason">${!part && html`<${Explained} of=${address("v1", "events", event.id)} />`}${own?.(event)}</td>`}
      </tr>
    `;
  }
}

// `explained`: whether each row also says what the event waits for; `separate`: whether those that start together have a
// row each.
/** @param {{ events: api.Event[], caption: portal.Children, head?: portal.Children, explained?: boolean, separate?: boolean, own?: Own }} props */
export function EventTable({ events, caption, head, explained, separate, own }) {
  const rows = separate ? events.map((event) => [event]) : maintenances(events);
  const shown = rows.slice(0, useGradually(rows.length));
  return html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      ${head ?? html`<${Head} of=${[...EVENT_COLUMNS, ...(explained ? [{ title: "What it waits for" }] : [])]} />`}
      <tbody>
        ${shown.map((together) => together.length > 1
          ? html`<${Maintenance} key=${together[0].joint} events=${together} explained=${explained} own=${own} />`
          : html`<${Row} key=${together[0].id} event=${together[0]} explained=${explained} own=${own} />`)}
      </tbody>
    </table>
  `;
}

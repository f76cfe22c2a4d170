// Machines as a table: where they are, whether they ask for their events, and what happens to them.
import { html } from "../html.js";
import { Badge, When } from "./basics.js";
import { stateOf } from "./event-table.js";
import { EventLink, GroupLink, HostLink, MachineLink } from "./links.js";

/** @param {{ event: api.Event }} props */
const Labelled = ({ event }) => html`
  <${EventLink} id=${event.id}>${event.type}<//> <${Badge} kind=${stateOf(event)}>${event.held ? "held" : event.status}<//>
`;

/** @param {{ of: api.Machine }} props */
export const Coverage = ({ of }) =>
  of.coverage === "never-polled"
    ? html`<span class="quiet">never</span>`
    : html`${of.coverage === "silent" ? "silent, last" : ""} <${When} instant=${of.last_poll} />`;

// `events`: those that are known, by their ids. `without`: a column that would be the same in all rows.
/** @param {{ machines: api.Machine[], events?: Record<string, api.Event>, caption: portal.Children, without?: "group" | "host" }} props */
export const MachineTable = ({ machines, events = {}, caption, without }) => html`
  <table class="rows stacked">
    <caption>${caption}</caption>
    <thead>
      <tr>
        <th>Machine</th>${without !== "group" && html`<th>Group</th>`}<th>Update domain</th>
        ${without !== "host" && html`<th>Host</th>`}<th>Last poll</th><th>Events</th>
      </tr>
    </thead>
    <tbody>
      ${machines.map(
        (machine) => html`
          <tr key=${machine.name}>
            <td><${MachineLink} name=${machine.name} />${machine.spot && html` <span class="quiet">spot</span>`}</td>
            ${without !== "group" && html`<td><${GroupLink} name=${machine.group} /></td>`}
            <td data-label="Domain">${machine.update_domain}</td>
            ${without !== "host" && html`<td><${HostLink} name=${machine.host} /></td>`}
            <td data-label="Polled"><${Coverage} of=${machine} /></td>
            <td>
              ${machine.drift && html`<${Badge} kind="held">${machine.drift}<//>`}
              ${machine.not_back && html`<${Badge} kind="held">not back<//>`}
              ${machine.gone && html`<${Badge} kind="over">${machine.gone}<//>`}
              ${machine.events.map((id) => html`<div key=${id}>${events[id] ? html`<${Labelled} event=${events[id]} />` : html`<${EventLink} id=${id} />`}</div>`)}
            </td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

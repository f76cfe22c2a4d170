// Machines as a table: where they are, whether they ask for their events, and what happens to them.
import { html } from "../html.js";
import { Badge, When } from "./basics.js";
import { stateOf } from "./event-table.js";
import { EventLink, GroupLink, HostLink, MachineLink } from "./links.js";
import { Head } from "./list.js";

/** @type {portal.Column[]} */
export const MACHINE_COLUMNS = [{ title: "Machine", order: "name" }, { title: "Group", order: "" }, { title: "Update domain" }, { title: "Host", order: "host" }, { title: "Last poll", order: "last_poll" }, { title: "Events", order: "events" }];

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
/** @param {{ machines: api.Machine[], events?: Record<string, api.Event>, caption: portal.Children, head?: portal.Children, without?: "Group" | "Host" }} props */
export const MachineTable = ({ machines, events = {}, caption, head, without }) => html`
  <table class="rows stacked">
    <caption>${caption}</caption>
    ${head ?? html`<${Head} of=${MACHINE_COLUMNS.filter(({ title }) => title !== without)} />`}
    <tbody>
      ${machines.map(
        (machine) => html`
          <tr key=${machine.name}>
            <td><${MachineLink} name=${machine.name} />${machine.spot && html` <span class="quiet">spot</span>`}</td>
            ${without !== "Group" && html`<td><${GroupLink} name=${machine.group} /></td>`}
            <td data-label="Domain">${machine.update_domain}</td>
            ${without !== "Host" && html`<td><${HostLink} name=${machine.host} /></td>`}
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

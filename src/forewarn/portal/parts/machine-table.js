// Machines as a table: where they are, whether they ask for their events, and what happens to them.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Badge, Empty, loaded, When } from "./basics.js";
import { stateOf } from "./event-table.js";
import { EventLink, GroupLink, HostLink, MachineLink } from "./links.js";
import { Head } from "./list.js";
import { plural } from "./text.js";

const PAGE = 100;

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

// The machines of a group or host, page by page. `page`: its address; `events`: those that are known; `empty`: what is
// said if it has none.
/** @param {{ of: { group?: string, host?: string }, page: string, events: api.Event[], after: string, without: "Group" | "Host", empty: string }} props */
export function Members({ of, page, events, after, without, empty }) {
  const machines = useResource(withQuery("/v1/machines", { ...of, limit: PAGE, after }));
  const known = Object.fromEntries(events.map((event) => [event.id, event]));
  return html`
    ${loaded(machines, (list) => html`
      ${list.length
        ? html`<${MachineTable} machines=${list} events=${known} without=${without} caption=${`${plural(list.length, "machine")}${machines.next || after ? " on this page" : ""}`} />`
        : html`<${Empty}>${after ? "There is no machine on this page." : empty}<//>`}
      <p class="pages">
        ${after && html`<${Link} to=${page}>First machines<//>`}
        ${machines.next && html`<${Link} to=${withQuery(page, { after: machines.next })} rel="next">Next machines<//>`}
      </p>`)}
  `;
}

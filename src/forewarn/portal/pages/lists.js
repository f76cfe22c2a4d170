// Hosts, groups and machines as lists. The page about the fleet shows the same as sums.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { Link } from "../router.js";
import { Badge, HEALTH, Labels } from "../parts/basics.js";
import { LABEL } from "../parts/filters.js";
import { GroupLink, HostLink } from "../parts/links.js";
import { List } from "../parts/list.js";
import { MACHINE_COLUMNS, MachineTable } from "../parts/machine-table.js";
import { grouped } from "../parts/text.js";

const APPLY = " Add some with 'forewarn apply'.";
const [MOST_MACHINES, MOST_EVENTS] = ["most machines first", "most events first"];

/** @type {portal.Filter[]} */
const hostFilters = [
  LABEL,
  { name: "health", title: "Health", choices: { healthy: "healthy", degraded: "degraded", failed: "failed" } },
  { name: "node", title: "Node", choices: { joined: "joined", disconnected: "disconnected", none: "none has joined" } },
  { name: "order", title: "Order", choices: { "": "by name", health: "failed first", machines: MOST_MACHINES, events: MOST_EVENTS } },
];

/** @type {portal.Column[]} */
const hostColumns = [
  { title: "Host", order: "" }, { title: "Health", order: "health" }, { title: "Machines", number: true, order: "machines" },
  { title: "Events of the host", number: true, order: "events" }, { title: "Node" }, { title: "Labels" },
];

/** @param {portal.Query} props */
export const Hosts = ({ query }) => html`
  <${List} title="Hosts" path="/v1/hosts" page="/hosts" filters=${hostFilters} columns=${hostColumns} query=${query} noun="host" empty=${`There is no host.${APPLY}`}>${(/** @type {api.Host[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      ${head}
      <tbody>
        ${list.map((host) => html`
          <tr key=${host.name}>
            <td><${HostLink} name=${host.name} /></td>
            <td><span class="badges"><${Badge} kind=${HEALTH[host.health]}>${host.health}<//>${host.cordoned && html`<${Badge} kind="started">cordoned<//>`}</span></td>
            <td class="number" data-label="Machines"><${Link} to=${withQuery("/machines", { host: host.name })}>${grouped(host.machines.length)}<//></td>
            <td class="number" data-label="Events of the host">${host.events.length || "0"}</td>
            <td data-label="Node">${host.node?.state ?? "none"}</td>
            <td>${Object.keys(host.labels).length > 0 && html`<${Labels} of=${host.labels} />`}</td>
          </tr>`)}
      </tbody>
    </table>`}<//>
`;

/** @type {portal.Filter[]} */
const groupFilters = [
  LABEL,
  { name: "kind", title: "Kind", choices: { "scale-set": "scale-set", "availability-set": "availability-set", "availability-zone": "availability-zone", "cloud-service": "cloud-service", standalone: "standalone" } },
  { name: "enabled", title: "Enabled", choices: { true: "yes", false: "no" } },
  { name: "order", title: "Order", choices: { "": "by name", machines: MOST_MACHINES, silent: "most that do not ask first", events: MOST_EVENTS } },
];

/** @type {portal.Column[]} */
const groupColumns = [
  { title: "Group", order: "" }, { title: "Kind" }, { title: "Machines", number: true, order: "machines" }, { title: "Of which ask", number: true, order: "silent" },
  { title: "Events", number: true, order: "events" }, { title: "Enabled" }, { title: "Windows of its own" }, { title: "Labels" },
];

/** @param {portal.Query} props */
export const Groups = ({ query }) => html`
  <${List} title="Groups" path="/v1/groups" page="/groups" filters=${groupFilters} columns=${groupColumns} query=${query} noun="group" empty=${`There is no group.${APPLY}`}>${(/** @type {api.Group[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      ${head}
      <tbody>
        ${list.map((group) => html`
          <tr key=${group.name}>
            <td><${GroupLink} name=${group.name} /></td>
            <td>${group.kind}</td>
            <td class="number" data-label="Machines"><${Link} to=${withQuery("/machines", { group: group.name })}>${grouped(group.machines.length)}<//></td>
            <td class="number" data-label="of which ask">${grouped(group.coverage.listening)}</td>
            <td class="number" data-label="Events">${group.events.length || "0"}</td>
            <td data-label="Enabled">${group.enabled ? "yes" : "no"}</td>
            <td>${[...group.windows, ...group.blackouts.map((text) => `not ${text}`)].join("; ")}</td>
            <td>${Object.keys(group.labels).length > 0 && html`<${Labels} of=${group.labels} />`}</td>
          </tr>`)}
      </tbody>
    </table>`}<//>
`;

/** @type {portal.Filter[]} */
const machineFilters = [
  { name: "group", title: "Group", example: "web" },
  { name: "host", title: "Host", example: "host-a" },
  LABEL,
  { name: "coverage", title: "Polls", choices: { listening: "in the last hour", silent: "not in the last hour", "never-polled": "never", "never-approves": "but never approves" } },
  { name: "gone", title: "Gone", choices: { false: "no", true: "yes" } },
  { name: "not_back", title: "Not back", choices: { true: "yes", false: "no" } },
  { name: "order", title: "Order", choices: { "": "by group", name: "by name", host: "by host", last_poll: "silent for longest first", events: MOST_EVENTS } },
];

/** @param {portal.Query} props */
export const Machines = ({ query }) => html`
  <${List} title="Machines" path="/v1/machines" page="/machines" filters=${machineFilters} columns=${MACHINE_COLUMNS} query=${query} noun="machine" empty=${`There is no machine.${APPLY}`}>${(/** @type {api.Machine[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
    <${MachineTable} machines=${list} caption=${caption} head=${head} />`}<//>
`;

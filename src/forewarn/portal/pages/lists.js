// Hosts, groups and machines as lists, with filters. The page about the fleet shows the same as sums.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Badge, Empty, HEALTH, Labels, loaded, Page } from "../parts/basics.js";
import { Filters, LABEL } from "../parts/filters.js";
import { GroupLink, HostLink } from "../parts/links.js";
import { MachineTable } from "../parts/machine-table.js";
import { plural } from "../parts/text.js";

const PAGE = 100;

// A page of what the service lists, and the filters and the place in the list, which are in the address.
/** @param {{ title: string, path: "/v1/hosts" | "/v1/groups" | "/v1/machines", page: string, filters: portal.Filter[], noun: string, children: (list: any[], caption: string) => portal.Children } & portal.Query} props */
function List({ title, path, page, filters, query, noun, children }) {
  const chosen = Object.fromEntries(filters.map(({ name }) => [name, query.get(name) ?? ""]));
  const after = query.get("after") ?? "";
  const items = useResource(withQuery(path, { ...chosen, after, limit: PAGE }));
  const filtered = Object.values(chosen).some(Boolean);
  return html`
    <${Page} title=${title}>
      <${Filters} of=${filters} page=${page} query=${query} />
      ${loaded(items, (list) => html`
        ${list.length
          ? children(list, items.next || after ? `${plural(list.length, noun)} on this page` : plural(list.length, noun))
          : html`<${Empty}>${filtered || after ? `No ${noun} matches. Change the filters above.` : `There is no ${noun}. Add some with 'forewarn apply'.`}<//>`}
        <p class="pages">
          ${after && html`<${Link} to=${withQuery(page, chosen)}>First page<//>`}
          ${items.next && html`<${Link} to=${withQuery(page, { ...chosen, after: items.next })} rel="next">Next page<//>`}
        </p>`)}
    <//>
  `;
}

/** @type {portal.Filter[]} */
const hostFilters = [LABEL, { name: "health", title: "Health", choices: { healthy: "healthy", degraded: "degraded", failed: "failed" } }];

/** @param {portal.Query} props */
export const Hosts = ({ query }) => html`
  <${List} title="Hosts" path="/v1/hosts" page="/hosts" filters=${hostFilters} query=${query} noun="host">${(/** @type {api.Host[]} */ list, /** @type {string} */ caption) => html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      <thead><tr><th>Host</th><th>Health</th><th class="number">Machines</th><th class="number">Events of the host</th><th>Node</th><th>Labels</th></tr></thead>
      <tbody>
        ${list.map((host) => html`
          <tr key=${host.name}>
            <td><${HostLink} name=${host.name} /></td>
            <td><span class="badges"><${Badge} kind=${HEALTH[host.health]}>${host.health}<//>${host.cordoned && html`<${Badge} kind="started">cordoned<//>`}</span></td>
            <td class="number" data-label="Machines"><${Link} to=${withQuery("/machines", { host: host.name })}>${host.machines.length.toLocaleString("en")}<//></td>
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
];

/** @param {portal.Query} props */
export const Groups = ({ query }) => html`
  <${List} title="Groups" path="/v1/groups" page="/groups" filters=${groupFilters} query=${query} noun="group">${(/** @type {api.Group[]} */ list, /** @type {string} */ caption) => html`
    <table class="rows stacked">
      <caption>${caption}</caption>
      <thead><tr><th>Group</th><th>Kind</th><th class="number">Machines</th><th class="number">of which ask</th><th class="number">Events</th><th>Enabled</th><th>Labels</th></tr></thead>
      <tbody>
        ${list.map((group) => html`
          <tr key=${group.name}>
            <td><${GroupLink} name=${group.name} /></td>
            <td>${group.kind}</td>
            <td class="number" data-label="Machines"><${Link} to=${withQuery("/machines", { group: group.name })}>${group.machines.length.toLocaleString("en")}<//></td>
            <td class="number" data-label="of which ask">${group.coverage.listening.toLocaleString("en")}</td>
            <td class="number" data-label="Events">${group.events.length || "0"}</td>
            <td data-label="Enabled">${group.enabled ? "yes" : "no"}</td>
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
];

/** @param {portal.Query} props */
export const Machines = ({ query }) => html`
  <${List} title="Machines" path="/v1/machines" page="/machines" filters=${machineFilters} query=${query} noun="machine">${(/** @type {api.Machine[]} */ list, /** @type {string} */ caption) => html`
    <${MachineTable} machines=${list} caption=${caption} />`}<//>
`;

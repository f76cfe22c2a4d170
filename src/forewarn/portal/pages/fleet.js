// The fleet, by host or by group.
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { usePrinted, useResource } from "../hooks.js";
import { address, go, Link, setQuery } from "../router.js";
import { Empty, loaded, Page } from "../parts/basics.js";
import { columns, FleetMap, Legend, STATES, total } from "../parts/fleet-map.js";
import { LongTable } from "../parts/long-table.js";
import { plural } from "../parts/text.js";
import { TextFilter } from "../parts/text-filter.js";
import { Verbs } from "../parts/verbs.js";

/**
 * @param {api.OverviewRow} row
 * @returns {portal.Counts}
 */
const sums = (row) =>
  Object.fromEntries(STATES.map((state) => [state, (row.domains ?? []).reduce((sum, d) => sum + (d[state] ?? 0), 0)]));

// What is wrong with a host, or was done to it, as one can filter by it.
/** @type {Record<string, (host: api.OverviewRow) => boolean>} */
const CONDITIONS = {
  healthy: (host) => host.health === "healthy",
  degraded: (host) => host.health === "degraded",
  failed: (host) => host.health === "failed",
  cordoned: (host) => host.cordoned,
  "cut off": (host) => host.unreachable,
};

/** @param {api.OverviewRow} host */
const condition = (host) => Object.keys(CONDITIONS).filter((name) => CONDITIONS[name](host)).join(", ");

/** @param {{ rows: api.OverviewRow[], by: string }} props */
function Numbers({ rows, by }) {
  const [open, setOpen] = useState(false);
  const printed = usePrinted();
  const head = html`<th>${by === "group" ? "Group" : "Host"}</th>${by === "host" && html`<th>Health</th>`}<th>Update domains</th>${STATES.map((state) => html`<th class="number">${state}</th>`)}`;
  /** @param {api.OverviewRow} row */
  const cells = (row) => {
    const of = sums(row);
    return html`
      <td><${Link} to=${address(`${by}s`, row.name)}>${row.name}<//></td>
      ${by === "host" && html`<td>${condition(row)}</td>`}
      <td>${columns([row]).join(", ")}</td>
      ${STATES.map((state) => html`<td class="number">${of[state] || ""}</td>`)}
    `;
  };
  return html`
    <details class="numbers" open=${open} onToggle=${(event) => setOpen(event.target.open)}>
      <summary>The same as a table</summary>
      ${(open || printed) && html`<${LongTable} head=${head} rows=${rows} row=${cells} />`}
    </details>
  `;
}

/** @param {portal.Query} props */
export function Fleet({ query }) {
  const by = query.get("by") === "group" ? "group" : "host";
  const [label, state] = [query.get("label") ?? "", query.get("state") ?? ""];
  const health = by === "host" ? query.get("health") ?? "" : "";
  const overview = useResource(`/v1/overview?by=${by}${label ? `&label=${encodeURIComponent(label)}` : ""}`);
  return html`
    <${Page} title="Fleet" aside=${html`<${Legend} /><${Verbs} kind="part" />`}>
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>Rows <select value=${by} onChange=${(event) => setQuery({ by: event.target.value })}>
          <option value="host">hosts</option><option value="group">groups</option>
        </select></label>
        <${TextFilter} title="Label" value=${label} example="rack=r1" onChange=${(event) => setQuery({ label: event.target.value.trim() })} />
        <label>With machines that are <select value=${state} onChange=${(event) => setQuery({ state: event.target.value })}>
          <option value="">anything</option>${STATES.map((name) => html`<option value=${name}>${name}</option>`)}
        </select></label>
        ${by === "host" && html`<label>Hosts that are <select value=${health} onChange=${(event) => setQuery({ health: event.target.value })}>
          <option value="">anything</option>${Object.keys(CONDITIONS).map((name) => html`<option value=${name}>${name}</option>`)}
        </select></label>`}
      </form>
      ${loaded(overview, ({ rows }) => {
        const shown = rows.filter((row) => (!state || sums(row)[state]) && (!(health in CONDITIONS) || CONDITIONS[health](row)));
        const machines = shown.reduce((sum, row) => sum + (row.domains ?? []).reduce((n, d) => n + total(d), 0), 0);
        if (!shown.length) return html`<${Empty}>No ${by} matches. ${rows.length ? "Change the filters above." : "Add machines with 'forewarn apply'."}<//>`;
        return html`
          <p class="quiet">${plural(machines, "machine")} ${by === "host" ? "on" : "in"} ${plural(shown.length, by)}. As lists: <${Link} to="/hosts">hosts<//>, <${Link} to="/groups">groups<//>, <${Link} to="/machines">machines<//>, <${Link} to="/maintenance">maintenance configurations<//></p>
          <${Numbers} rows=${shown} by=${by} />
          <${FleetMap} rows=${shown} onPick=${(/** @type {string} */ name) => go(address(`${by}s`, name))} />
        `;
      })}
    <//>
  `;
}

// The fleet by host or by group, or summed by a label: as a picture, and as a table whose sums fold out.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link, setQuery } from "../router.js";
import { useSession } from "../session.js";
import { Bar } from "../parts/bar.js";
import { Badge, Empty, HEALTH, loaded, Page } from "../parts/basics.js";
import { Filters } from "../parts/filters.js";
import { FleetMap, inWords, MEANINGS, ROW_STATES, STATES, total } from "../parts/fleet-map.js";
import { LongTable } from "../parts/long-table.js";
import { grouped, naturally, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

const MOST = 1_000; // rows: the others are quieter

/** @typedef {api.OverviewRow & { selector?: string, within?: string, key?: string }} Row */

// `selector`: of what is in a sum; `within`: the sum that has been folded out to this row.
/**
 * @param {api.OverviewRow} row
 * @param {{ selector?: string, within?: string }} [of]
 * @returns {Row}
 */
const rowOf = (row, of = {}) => ({
  ...row,
  ...of,
  key: `${of.within ?? ""} ${row.name}`,
});

/** @param {{ rows: Row[], by: "host" | "group", sums: string, open: string, to: (selector: string) => string }} props */
function Table({ rows, by, sums, open, to }) {
  const most = rows.reduce((largest, row) => (row.within ? largest : Math.max(largest, total(row.machines))), 1);
  const title = by === "group" ? "Groups" : "Hosts";
  /** @param {Row} row */
  const name = (row) => {
    if (row.selector === undefined) return html`<${Link} to=${address(`${by}s`, row.name)} class=${row.within ? "part" : undefined}>${row.name}<//>`;
    const is = row.selector === open;
    return html`<button class="plain" aria-expanded=${is} aria-label=${`${row.name || "none"}: ${title.toLowerCase()}`} onClick=${() => setQuery({ open: is ? "" : (row.selector ?? "") })}>${is ? "▾" : "▸"}</button>
      <${Link} to=${to(row.selector)}>${row.name || "none"}<//>`;
  };
  return html`
    <${LongTable} rows=${rows}
      head=${html`<th>${sums || title.slice(0, -1)}</th><th>${sums ? title : "State"}</th><th>Machines</th>${STATES.map((state) => html`<th class="number">${state}</th>`)}`}
      row=${(/** @type {Row} */ row) => html`
        <td>${name(row)}</td>
        <td>${row.counts
          ? inWords(row.counts)
          : html`<span class="badges">
              ${row.health && row.health !== "healthy" && html`<${Badge} kind=${HEALTH[row.health]}>${row.health}<//>`}
              ${row.unreachable && html`<${Badge} kind="held">unreachable<//>`}
              ${row.cordoned && html`<${Badge} kind="started">cordoned<//>`}
              ${!["unhealthy", "cordoned"].includes(row.state) && row.state}
            </span>`}</td>
        <td><${Bar} counts=${row.machines} states=${STATES} most=${row.within ? undefined : most} /></td>
        ${STATES.map((state) => html`<td class="number">${grouped(row.machines[state])}</td>`)}
      `} />
  `;
}

/** @param {portal.Query} props */
export function Fleet({ query }) {
  const tenant = useSession().role === "tenant"; // sees no hosts
  const by = tenant || query.get("by") === "group" ? "group" : "host";
  const [sums, label, state, open] = ["sums", "label", "state", "open"].map((name) => query.get(name) ?? "");
  /** @param {Record<string, string>} changes */
  const to = (changes) => withQuery("/fleet", { ...Object.fromEntries(query), open: "", ...changes });
  /** @param {string} name */
  const selectorOf = (name) => [label, name ? `${sums}=${name}` : `!${sums}`].filter(Boolean).join(",");
  const asked = { by, label, state, order: "state", limit: MOST };
  const path = withQuery("/v1/overview", { ...asked, sums });
  const overview = useResource(path);
  const opened = useResource(sums && open ? withQuery("/v1/overview", { ...asked, label: open }) : path);
  const labels = Object.fromEntries([...(overview.data?.labels ?? []), ...(sums ? [sums] : [])].map((name) => [name, name]));
  return html`
    <${Page} title="Fleet" aside=${html`<${Verbs} kind="part" />`}>
      <${Filters} page="/fleet" query=${query} of=${[
        ...(tenant ? [] : [{ name: "by", title: "Rows", choices: { "": "hosts", group: "groups" } }]),
        { name: "sums", title: "Summed by", choices: { "": "nothing", ...labels } },
        { name: "label", title: "Label", example: "rack=r1" },
        { name: "state", title: "Only what is", choices: { "": "anything", ...Object.fromEntries(ROW_STATES.map((name) => [name, name])) } },
      ]} />
      ${loaded(overview, (of) => {
        const members = ROW_STATES.reduce((sum, name) => sum + (of.counts[name] ?? 0), 0);
        if (!members) return html`<${Empty}>No ${by} matches. ${label || state ? "Change the filters above." : "Add machines with 'forewarn apply'."}<//>`;
        const rows = of.rows.flatMap((row) => {
          if (!sums) return [rowOf(row)];
          const selector = selectorOf(row.name);
          return [rowOf(row, { selector }), ...(selector === open ? (opened.data?.rows ?? []).map((part) => rowOf(part, { within: open })) : [])];
        });
        return html`
          <p class="quiet">${plural(total(of.machines), "machine")} ${by === "host" ? "on" : "in"} ${plural(members, by)}.</p>
          <ul class="legend sums">
            ${ROW_STATES.filter((name) => of.counts[name]).map((name) => html`<li title=${MEANINGS[name]}><span class=${`swatch ${name}`}></span><${Link} to=${to({ state: name })}>${grouped(of.counts[name])} ${name}<//></li>`)}
          </ul>
          <${FleetMap} blocks=${sums ? of.rows.map(({ name, counts }) => ({ name, counts: counts ?? {} })).sort((a, b) => naturally(a.name, b.name)) : [{ name: "", counts: of.counts }]}
            to=${sums && ((/** @type {string} */ name) => to({ sums: "", label: selectorOf(name) }))} />
          <${Table} rows=${rows} by=${by} sums=${sums} open=${open} to=${(/** @type {string} */ selector) => to({ sums: "", label: selector })} />
          ${of.left_out > 0 && html`<p class="quiet">${plural(of.left_out, "more row is", "more rows are")} not shown. Choose a filter, or a label to sum by.</p>`}
        `;
      })}
    <//>
  `;
}

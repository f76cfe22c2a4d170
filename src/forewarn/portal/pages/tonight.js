// What is going to be disturbed, as a calendar by host, group or label, and as a table.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { onTelephone, useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { useSession } from "../session.js";
import { Badge, Empty, loaded, Page } from "../parts/basics.js";
import { Filters, LABEL } from "../parts/filters.js";
import { EventLink, GroupLink, RolloutLink, Several, WindowsLink } from "../parts/links.js";
import { LongTable } from "../parts/long-table.js";
import { duration, grouped, listed, plural, shortly } from "../parts/text.js";

const [HOUR, DAY, WEEK] = [3_600_000, 86_400_000, 168]; // milliseconds, and hours
const [TICKS, LEAST] = [8, 0.5]; // labels of the line of time, and percent of it that a mark has at least
const FEW = 8; // windows and blackouts that are shown without being asked for
/** @type {Record<string, string>} */
const KINDS = { Started: "started", Scheduled: "scheduled", Planned: "planned" };

// Midnight of a day in the reader's zone; nothing if it is none.
/** @param {string} day */
function midnight(day) {
  const time = new Date(`${day}T00:00`);
  return day && !Number.isNaN(time.getTime()) ? time.toISOString() : "";
}

/** @param {api.Disturbance} of */
const nameOf = (of) => (of.steps ? `${of.type}, ${plural(of.steps, "step")} of wave ${of.wave}` : `${of.type} of ${of.host ? `host ${of.host}` : listed(of.names ?? [], 3, of.machines)}`);

/** @param {api.Disturbance} of */
const linkTo = (of) => (of.events?.length ? address("events", of.events[0]) : address("rollouts", of.rollout));

/** @param {api.Disturbance} of */
const about = (of) => [
  `${nameOf(of)}: ${of.status.toLowerCase()}, ${shortly(of.begins)}${of.ends ? ` to ${shortly(of.ends)}` : ""}, ${plural(of.machines, "machine")}`,
  of.not_approved?.length ? `not approved by ${listed(of.not_approved)}` : "",
  of.not_shown ? `never shown to ${listed(of.not_shown_names ?? [], 3, of.not_shown)}` : "",
].filter(Boolean).join("; ");

/** @param {api.Disturbance} of */
const kindOf = (of) => [KINDS[of.status], of.approved && "approved", of.not_shown && "unseen"].filter(Boolean).join(" ");

// Where instants are on the line of time from one to another, in percent.
/** @param {api.Tonight} of */
function lineOf({ at, begins, ends }) {
  const [from, to] = [Date.parse(begins), Date.parse(ends)];
  /** @param {number} time */
  const x = (time) => Math.min(100, Math.max(0, (100 * (time - from)) / (to - from)));
  const step = to - from > 2 * DAY ? DAY : Math.ceil((to - from) / HOUR / TICKS) * HOUR;
  /** @type {[x: number, label: string][]} */
  const ticks = [];
  const first = new Date(from);
  first.setMinutes(0, 0, 0);
  if (step >= DAY) first.setHours(0);
  for (let time = first.getTime() + (step >= DAY ? DAY : HOUR); time < to; time += step) {
    const date = new Date(time);
    ticks.push([x(time), step >= DAY ? date.toLocaleDateString("en", { weekday: "short", day: "numeric" }) : date.toTimeString().slice(0, 5)]);
  }
  return { x, ticks, now: Date.parse(at) > from ? x(Date.parse(at)) : null };
}

/** @typedef {{ begins: string, ends?: portal.Instant, kind: string, title: () => string, to?: string }} Mark */

// Where marks are, in percent: those that nobody could tell from each other are one.
/** @param {Mark[]} marks @param {(time: number) => number} x */
function drawn(marks, x) {
  /** @type {Map<string, Mark & { left: number, width: number, others: number }>} */
  const places = new Map();
  for (const mark of marks) {
    const left = x(Date.parse(mark.begins));
    const width = Math.max(LEAST, x(Date.parse(mark.ends ?? mark.begins)) - left);
    const place = [mark.kind, Math.round(left / LEAST), Math.round(width / LEAST)].join();
    const first = places.get(place);
    if (first) first.others += 1;
    else places.set(place, { ...mark, left, width, others: 0 });
  }
  return [...places.values()];
}

// One row of the calendar. `line`: of time.
/** @param {{ marks: Mark[], line: ReturnType<typeof lineOf> }} props */
const Strip = ({ marks, line: { x, ticks, now } }) => html`
  <svg aria-hidden="true">
    ${ticks.map(([at]) => html`<line x1=${`${at}%`} x2=${`${at}%`} y1="0" y2="100%" />`)}
    ${drawn(marks, x).map(({ left, width, kind, title, to, others }) => {
      const mark = html`<rect class=${kind} x=${`${Math.min(left, 100 - LEAST)}%`} width=${`${width}%`} y="15%" height="70%"><title>${title()}${others > 0 && `, and ${plural(others, "other")} at the same time`}</title></rect>`;
      return to ? html`<${Link} to=${to} tabindex="-1">${mark}<//>` : mark;
    })}
    ${now !== null && html`<line class="now" x1=${`${now}%`} x2=${`${now}%`} y1="0" y2="100%" />`}
  </svg>
`;

/** @param {{ line: ReturnType<typeof lineOf> }} props */
const Axis = ({ line: { ticks } }) => html`<th class="strip"><svg aria-hidden="true">${ticks.map(([at, label]) => html`<text x=${`${at}%`} y="70%">${label}</text>`)}</svg></th>`;

// When windows are open, and blackouts: those that are written alike are one row.
/** @param {{ of: api.Tonight, line: ReturnType<typeof lineOf> }} props */
function Windows({ of, line }) {
  /** @type {Map<string, { name: portal.Children, text: string, marks: Mark[] }>} */
  const rows = new Map();
  for (const item of of.open_or_closed) {
    const [kind, more] = [item.blackout ? "blackout" : "window", item.more_groups ?? 0];
    const groups = item.groups ?? [];
    const whom = item.name
      ? html`<${WindowsLink}>${item.name}<//> (<${Link} to=${withQuery("/machines", { label: item.select })}>${item.select || "all machines"}<//>)`
      : html`<${Several} of=${groups} as=${GroupLink} />${more > 0 && ` and ${grouped(more)} more`}`;
    const key = [kind, item.name, ...groups, item.text].join();
    const row = rows.get(key) ?? { name: html`${kind}: ${whom}`, text: item.text, marks: [] };
    row.marks.push({ ...item, kind, title: () => `${item.text}: ${shortly(item.begins)} to ${shortly(item.ends)}` });
    rows.set(key, row);
  }
  if (!rows.size) return null;
  return html`
    <details class="numbers" open=${rows.size <= FEW && !onTelephone()}>
      <summary>${plural(rows.size, "window or blackout", "windows and blackouts")}</summary>
      <${LongTable} kind="stacked calendar" head=${html`<th>For</th><${Axis} line=${line} /><th>As written</th>`} rows=${[...rows].map(([key, row]) => ({ ...row, key }))}
        row=${(/** @type {{ name: portal.Children, text: string, marks: Mark[] }} */ row) => html`<td>${row.name}</td><td class="strip"><${Strip} marks=${row.marks} line=${line} /></td><td>${row.text}</td>`} />
    </details>
  `;
}

/** @param {{ of: api.Tonight, line: ReturnType<typeof lineOf>, title: string, to: (name: string) => string }} props */
const Calendar = ({ of, line, title, to }) => html`
  <${LongTable} kind="stacked calendar" head=${html`<th>${title}</th><${Axis} line=${line} /><th class="number">Machines</th><th>Not approved by</th><th class="number">Never shown</th>`}
    rows=${of.rows}
    row=${(/** @type {api.TonightRow} */ row) => {
      const items = row.disturbances.map((n) => of.disturbances[n]);
      const missing = row.not_approved ?? [];
      return html`
        <td>${row.name ? html`<${Link} to=${to(row.name)}>${row.name}<//>` : "none"}</td>
        <td class="strip"><${Strip} line=${line} marks=${items.map((item) => ({ ...item, kind: kindOf(item), title: () => about(item), to: linkTo(item) }))} /></td>
        <td class="number" data-label="machines">${grouped(row.machines)}</td>
        <td data-label="not approved by">${missing.length > 0 && html`<${Several} of=${missing} most=${1} count=${missing.length + (row.more_not_approved ?? 0)} as=${GroupLink} />`}</td>
        <td class="number" data-label="never shown">${grouped(row.not_shown)}</td>
      `;
    }} />
`;

/** @param {{ of: api.Tonight, title: string }} props */
const Table = ({ of, title }) => html`
  <${LongTable} kind="stacked disturbances" head=${html`<th>Begins</th><th>For</th><th>What</th><th>State</th><th>${title}</th><th class="number">Machines</th><th>Not approved by</th><th>Never shown to</th>`}
    rows=${of.disturbances.map((item, n) => ({ ...item, key: item.events?.[0] ?? `${item.rollout} ${n}` }))}
    row=${(/** @type {api.Disturbance} */ item) => html`
      <td>${shortly(item.begins)}</td>
      <td data-label="for">${item.ends && duration(Date.parse(item.ends) - Date.parse(item.begins))}</td>
      <td class="cut" title=${about(item)}>${item.events?.length ? html`<${EventLink} id=${item.events[0]}>${nameOf(item)}<//>` : html`<${RolloutLink} id=${item.rollout ?? ""}>${nameOf(item)}<//>`}</td>
      <td><${Badge} kind=${KINDS[item.status]}>${item.status}<//></td>
      <td class="cut">${listed(item.rows, 2)}</td>
      <td class="number" data-label="machines">${grouped(item.machines)}</td>
      <td data-label="not approved by" title=${item.not_approved?.join(", ")}>${item.not_approved && html`<${Several} of=${item.not_approved} most=${1} as=${GroupLink} />`}</td>
      <td data-label="never shown to" title=${item.not_shown_names?.join(", ")}>${item.not_shown ? listed(item.not_shown_names ?? [], 1, item.not_shown) : ""}</td>
    `} />
`;

/** @param {api.Tonight} of */
const summary = (of) => [
  `${plural(of.machines, "machine")} on ${plural(of.hosts, "host")} ${of.machines === 1 ? "is" : "are"} disturbed.`,
  of.not_approved ? `${grouped(of.not_approved)} of ${plural(of.announced, "announced disturbance")} ${of.not_approved === 1 ? "is" : "are"} not approved by all groups.` : "",
  of.not_shown ? `${plural(of.not_shown, "machine was", "machines were")} never shown what is announced.` : "",
  of.left_out ? `Only the first ${grouped(of.disturbances.length)} disturbances are shown: choose a shorter time, or a part of the fleet.` : "",
].join(" ");

const Legend = () => html`
  <ul class="legend">
    ${[["scheduled approved", "approved"], ["scheduled", "not approved by all"], ["planned", "still to be announced"], ["started", "under way"], ["scheduled unseen", "never shown to some machine"]].map(([kind, words]) => html`<li><svg class="mark"><rect class=${kind} width="100%" height="100%" /></svg>${words}</li>`)}
  </ul>
`;

/** @param {portal.Query} props */
export function Tonight({ query }) {
  const tenant = useSession().role === "tenant"; // sees no hosts
  const by = tenant || query.get("by") === "group" ? "group" : "host";
  const sums = query.get("sums") ?? "";
  const hours = Number(query.get("hours")) === WEEK ? WEEK : 24;
  const [label, host_label] = [query.get("label"), query.get("host_label")];
  const tonight = useResource(withQuery("/v1/tonight", { by, sums, hours, label, host_label, from: midnight(query.get("day") ?? "") }));
  const labels = Object.fromEntries([...(tonight.data?.labels ?? []), ...(sums ? [sums] : [])].map((name) => [name, name]));
  const title = sums || (by === "group" ? "Group" : "Host");
  /** @param {string} name */
  const to = (name) => (sums
    ? withQuery("/tonight", { ...Object.fromEntries(query), sums: "", [by === "host" ? "host_label" : "label"]: [query.get(by === "host" ? "host_label" : "label"), `${sums}=${name}`].filter(Boolean).join(",") })
    : address(`${by}s`, name));
  return html`
    <${Page} title="Tonight" aside=${html`<${Legend} />`}>
      <${Filters} page="/tonight" query=${query} of=${[
        ...(tenant ? [] : [{ name: "by", title: "Rows", choices: { "": "hosts", group: "groups" } }]),
        { name: "sums", title: "Summed by", choices: { "": "nothing", ...labels } },
        { name: "day", title: "From", day: true },
        { name: "hours", title: "For", choices: { "": "24 hours", [WEEK]: "a week" } },
        LABEL,
        ...(tenant ? [] : [{ name: "host_label", title: "On hosts", example: "rack=r1" }]),
        { name: "as", title: "As", choices: { "": "a calendar", table: "a table" } },
      ]} />
      ${loaded(tonight, (of) => {
        const line = lineOf(of);
        return html`
          <p><strong>${shortly(of.begins)} to ${shortly(of.ends)}.</strong> ${of.rows.length > 0 && summary(of)}</p>
          <${Windows} of=${of} line=${line} />
          ${!of.rows.length ? html`<${Empty}>Nothing is going to be disturbed.<//>` : query.get("as") === "table" ? html`<${Table} of=${of} title=${title} />` : html`<${Calendar} of=${of} line=${line} title=${title} to=${to} />`}
        `;
      })}
    <//>
  `;
}

// What is under way, what is next and what it waits for, who did what last, and what is unwell.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Empty, Facts, loaded, Page, When } from "../parts/basics.js";
import { EventTable, maintenances } from "../parts/event-table.js";
import { Explained } from "../parts/explanation.js";
import { Records } from "../parts/records.js";
import { at, grouped, plural, shortly } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";
import { useSession } from "../session.js";
import { RolloutRow } from "./rollouts.js";

const MOST = 10; // rows of a table of events
const READ = 200; // events that are read for them: a maintenance has several
const PROBLEMS = 10; // that are listed
const AGAIN = 30_000; // milliseconds until problems are read again, for those that only time brings
const ROLLOUTS = 5;
const DECIDED = 5; // rows
const RECORDS = 50; // that are read for them
// What people and machines decide, and not what follows from it.
const DECISIONS = [
  ...["approved", "postponed", "started", "finished", "withdrawn", "halt-placed", "halt-released"],
  ...["rollout-started", "rollout-paused", "rollout-resumed", "rollout-aborted", "rollout-ended"],
].join(",");

// The pages on which one sees and does something about a kind of problem, or a warning. Others name a command.
/** @type {Record<string, (subject: string) => string | undefined>} */
const PLACES = {
  held: (id) => address("events", id),
  overdue: (id) => address("events", id),
  rollout: (id) => address("rollouts", id),
  "not-back": () => "/machines?not_back=true",
  host: (name) => address("hosts", name),
  warning: (about) => WARNINGS[about],
};
/** @type {Record<string, string>} */
const WARNINGS = { hosts: "/fleet?state=unhealthy", drivers: "/fleet?state=unhealthy", nodes: "/hosts?node=none" };

/** @param {{ of: api.StatusProblem }} props */
function Problem({ of }) {
  const to = PLACES[of.kind]?.(of.subject);
  return html`
    <li>
      ${to ? html`<${Link} to=${to}>${of.message}<//>` : of.message}
      ${of.since && html` since ${at(of.since)}, <${When} instant=${of.since} />`}
      ${of.expires && html` at ${at(of.expires)}, <${When} instant=${of.expires} />`}
      ${of.advice && html` <span class="quiet">${of.advice}</span>`}
    </li>`;
}

// What forewarn status says, and exits with 1 because of.
/** @param {{ status: portal.Read<api.Status> }} props */
function Problems({ status }) {
  if (!status.data || status.error) return null;
  const { problems, problems_total: total } = status.data;
  if (!problems.length) return html`<span class="well">Everything works.</span>`;
  return html`
    <ul class="unwell">
      ${problems.slice(0, PROBLEMS).map((of) => html`<${Problem} key=${of.kind + of.subject} of=${of} />`)}
      ${total > PROBLEMS && html`<li>and ${total - PROBLEMS} more: <code>forewarn status --json</code></li>`}
    </ul>
  `;
}

// For the owners of machines: when it is, and what they can do.
/** @param {{ event: api.Event }} props */
function Own({ event }) {
  const { data } = useResource(`/v1/events/${encodeURIComponent(event.id)}/explain`);
  return html`
    ${event.status === "Scheduled" && html`<small>not before ${shortly(event.not_before)}</small>`}
    ${data && html`<${Verbs} kind="event" of=${event} more=${data} />`}
  `;
}

/** @param {api.Event} event */
const own = (event) => html`<${Own} event=${event} />`;

// The first few. `count`: of all events of this kind.
/** @param {{ events: portal.Read<api.Event[]>, caption: string, count: number, all: string }} props */
function Events({ events, caption, count, all }) {
  const rows = maintenances(events.data ?? []);
  const whole = events.next && rows.length > 1 ? rows.slice(0, -1) : rows; // the last one may go on
  return html`
    <${EventTable} events=${whole.slice(0, MOST).flat()} caption=${caption} explained own=${useSession().limited ? own : undefined} />
    ${(whole.length > MOST || events.next) && html`<p><${Link} to=${all}>${plural(count, "event")} in all<//></p>`}
  `;
}

// What to do next, where nothing happens.
/** @param {{ machines?: number }} props */
const Nothing = ({ machines }) =>
  machines === 0
    ? html`<${Empty}>There are no machines yet. Describe them in a fleet file, and run <code>forewarn apply fleet.yaml</code>.<//>`
    : html`<${Empty}>Nothing is announced. Start a <${Link} to="/rollouts">rollout<//>, or choose a host or machine of the <${Link} to="/fleet">fleet<//> to maintain it.<//>`;

function Rollouts() {
  const rollouts = useResource(withQuery("/v1/rollouts", { limit: ROLLOUTS }));
  const running = (rollouts.data ?? []).filter((rollout) => !rollout.ended_at);
  if (!running.length) return null;
  return html`
    <table class="rows stacked">
      <caption>Rollouts in progress</caption>
      <thead><tr><th>Rollout</th><th>Of</th><th>State</th><th>Progress</th><th>What it waits for</th></tr></thead>
      <tbody>
        ${running.map((of) => html`
          <${RolloutRow} key=${of.id} of=${of}><td class="reason"><${Explained} of=${address("v1", "rollouts", of.id)} /></td><//>`)}
      </tbody>
    </table>
    ${rollouts.next && html`<p><${Link} to="/rollouts">All rollouts<//></p>`}
  `;
}

/**
 * @param {api.HistoryRecord} a
 * @param {api.HistoryRecord} b
 */
const alike = (a, b) => a.at === b.at && a.what === b.what && a.by === b.by && a.note === b.note;

// One record for those that one decision has caused, such as the withdrawal of several events.
/** @param {api.HistoryRecord[]} records */
function merged(records) {
  /** @type {api.HistoryRecord[]} */
  const rows = [];
  for (const record of records) {
    const last = rows.at(-1);
    if (!last || !alike(last, record)) rows.push(record);
    else {
      /** @param {"group" | "host" | "cause"} name */
      const same = (name) => (last[name] === record[name] ? last[name] : "");
      rows[rows.length - 1] = { ...last, event: "", group: same("group"), host: same("host"), cause: same("cause"), machines: [...new Set([...last.machines, ...record.machines])] };
    }
  }
  return rows;
}

function Decisions() {
  const { data } = useResource(withQuery("/v1/history", { what: DECISIONS, limit: RECORDS }));
  if (!data?.records.length) return null;
  return html`
    <${Records} of=${merged(data.records).slice(0, DECIDED)} caption="Who did what last" />
    <p><${Link} to="/history">All of the history<//></p>
  `;
}

export function Status() {
  const status = useResource("/v1/status", AGAIN);
  const started = useResource(withQuery("/v1/events", { status: "Started", limit: READ }));
  const scheduled = useResource(withQuery("/v1/events", { status: "Scheduled", order: "not_before", limit: READ }));
  // The two are read one after the other, and an event may have started in between.
  const begun = new Set(started.data?.map((event) => event.id));
  const next = { ...scheduled, data: scheduled.data && scheduled.data.filter((event) => !begun.has(event.id)) };
  return html`
    <${Page} title="Status" aside=${html`<${Problems} status=${status} />`}>
      ${loaded(started, (list) => list.length > 0 && html`<${Events} events=${started} caption="Under way" count=${status.data?.started ?? list.length} all="/events?status=Started" />`)}
      ${loaded(next, (list) => list.length > 0
        ? html`<${Events} events=${next} caption="Starts next" count=${status.data ? status.data.events - status.data.started : list.length} all="/events?status=Scheduled&order=not_before" />`
        : html`<${Nothing} machines=${status.data?.machines} />`)}
      <${Rollouts} />
      <${Decisions} />
      ${loaded(status, (of) => html`
        <${Facts} of=${[
          ["Machines", `${grouped(of.machines)} in ${plural(of.groups, "group")}`],
          ["Ask for their events", plural(of.coverage.listening, "machine")],
          ["Do not ask for them", of.coverage.silent + of.coverage.never_polled > 0 && html`<${Link} to="/fleet?state=silent">${plural(of.coverage.silent + of.coverage.never_polled, "machine")}<//>`],
          ["Not back after an event", of.not_back > 0 && html`<${Link} to="/machines?not_back=true">${plural(of.not_back, "machine")}<//>`],
          ["Unknown callers", of.unknown_callers || ""],
          ["Service's time", `${at(of.clock.now)}${of.clock.virtual ? ", a virtual clock" : ""}`],
          ["Next due", of.clock.next_due && html`${at(of.clock.next_due)}, <${When} instant=${of.clock.next_due} />`],
          ["Control node", of.control_node && `${of.control_node.name} (${of.control_node.role})`],
          ["Version", of.version],
        ]} />`)}
    <//>
  `;
}

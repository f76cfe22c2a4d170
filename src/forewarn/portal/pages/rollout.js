// One rollout: what it waits for, its steps as sums, and its lanes, of which one can be looked at closely.
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Empty, Facts, loaded, Page, When } from "../parts/basics.js";
import { Explanation, Hold, Until } from "../parts/explanation.js";
import { EventLink, Several } from "../parts/links.js";
import { Lanes, StepTable, Sums } from "../parts/steps.js";
import { at, duration, grouped, listed, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";
import { RolloutState } from "./rollouts.js";

const PAGE = 500;
const QUICK = 500; // steps of a rollout whose end is quick to forecast

/** @param {{ of: api.WaitExplained }} props */
const Wait = ({ of }) => html`
  <li>
    <strong>${of.message}</strong><${Until} instant=${of.until} />
    ${of.count > 1 && of.lanes.length > 0 && html`<p class="quiet">${plural(of.count, "lane")}, ${of.lanes.length < of.count ? "such as " : ""}${of.lanes.join(", ")}.</p>`}
    ${of.details.length
      ? html`
          <details open=${of.details.length === 1}>
            <summary>${plural(of.details.length, "event")}</summary>
            ${of.details.map((event) => html`
              <div key=${event.event}>
                <${EventLink} id=${event.event} /> ${event.status}
                ${event.holds.length > 0 && html`<ul>${event.holds.map((hold) => html`<${Hold} of=${hold} />`)}</ul>`}
              </div>`)}
          </details>
        `
      : html`
          ${of.events.length > 0 && html`<p>It waits for <${Several} of=${of.events} as=${EventLink} />.</p>`}
          ${of.unblocked_by && html`<p class="quiet">Unblocked by ${of.unblocked_by}.</p>`}
        `}
  </li>
`;

/** @param {{ path: `/v1/rollouts/${string}`, lane: Record<string, string> }} props */
function Explained({ path, lane }) {
  const explained = useResource(withQuery(`${path}/explain`, lane));
  return html`
    ${loaded(explained, (of) => html`
      <${Explanation} message=${of.message}><ul>${of.waits.map((wait) => html`<${Wait} of=${wait} />`)}</ul><//>`)}
  `;
}

/** @param {{ path: `/v1/rollouts/${string}` }} props */
const End = ({ path }) => {
  const report = useResource(`${path}?expected_end=true`);
  if (!report.data) return "…";
  return report.data.expected_end ? html`${at(report.data.expected_end)}, <${When} instant=${report.data.expected_end} />` : "not known";
};

// When it ends: for a large rollout only when somebody asks, since that takes the service a moment.
/** @param {{ path: `/v1/rollouts/${string}`, steps: number }} props */
function ExpectedEnd({ path, steps }) {
  const [asked, setAsked] = useState(steps <= QUICK);
  return asked ? html`<${End} path=${path} />` : html`<button class="plain" onClick=${() => setAsked(true)}>Forecast</button>`;
}

/** @param {{ path: `/v1/rollouts/${string}`, page: string, rollout: api.RolloutReport, filters: Record<string, string>, after: string }} props */
function Steps({ path, page, rollout, filters, after }) {
  const steps = useResource(withQuery(`${path}/steps`, { ...filters, after, limit: PAGE }));
  const narrowed = Object.values(filters).some(Boolean);
  /** @param {api.Step} step */
  const to = (step) => withQuery(page, step.host ? { host: step.host } : { group: step.lane });
  return html`
    ${narrowed && html`<p>Only ${listed(Object.values(filters).filter(Boolean))}. <${Link} to=${page}>Show all steps<//></p>`}
    ${loaded(steps, (list) =>
      list.length
        ? html`
            <${Lanes} steps=${list} waves=${rollout.waves} to=${to} />
            <details class="numbers" open=${Boolean(filters.group || filters.host)}>
              <summary>The same as a table</summary>
              <${StepTable} steps=${list} />
            </details>
            <p class="pages">
              ${after && html`<${Link} to=${withQuery(page, filters)}>First steps<//>`}
              ${steps.next && html`<${Link} to=${withQuery(page, { ...filters, after: steps.next })} rel="next">Next steps<//>`}
            </p>
          `
        : html`<${Empty}>No step matches. <${Link} to=${page}>Show all steps<//><//>`)}
  `;
}

/** @param {api.Switch | null} of */
const switched = (of) => of && html`${at(of.at)} by ${of.by}${of.reason && `: ${of.reason}`}`;

/** @param {{ name: string } & portal.Query} props */
export function Rollout({ name: id, query }) {
  const [path, page] = [address("v1", "rollouts", id), address("rollouts", id)];
  const rollout = useResource(path);
  const lane = { group: query.get("group") ?? "", host: query.get("host") ?? "" };
  const [state, after] = [query.get("state") ?? "", query.get("after") ?? ""];
  return html`
    ${loaded(rollout, (of) => html`
      <${Page} title=${`Rollout: ${of.type} of ${of.selection}`} aside=${html`<${RolloutState} of=${of} />`}>
        <${Explained} path=${path} lane=${lane} />
        <${Verbs} kind="rollout" of=${{ ...of, lane: lane.group || lane.host }} />
        <p class="quiet">${grouped(of.steps_done)} of ${plural(of.steps_total, "step")} done${of.waves > 1 && !of.ended_at && `, wave ${of.wave} of ${of.waves}`}</p>
        <${Sums} counts=${of.steps_by_state} state=${state} to=${(/** @type {string} */ name) => withQuery(page, { ...lane, state: name })} />
        <${Facts} of=${[
          ["Id", html`<code>${of.id}</code>`],
          ["Started", html`${at(of.created_at)} by ${of.by}`],
          ["Ended", at(of.ended_at)],
          ["Expected to end", !of.ended_at && html`<${ExpectedEnd} path=${path} steps=${of.steps_total} />`],
          ["About", `${plural(of.machines, "machine")} in ${plural(of.groups, "group")} on ${plural(of.hosts, "host")}`],
          ["Lanes at a time", String(of.at_once)],
          ["Waves", of.waves > 1 && String(of.waves)],
          ["Notice", duration(of.notice * 1_000)],
          ["Bake time after each step", of.bake > 0 && duration(of.bake * 1_000)],
          ["Gate", of.gate && `${of.gate}${of.gate_timeout ? `, for up to ${duration(of.gate_timeout * 1_000)}` : ""}`],
          ["Windows", of.windows.join("; ") || (of.ignore_windows ? "none; it ignores those of groups" : "none of its own")],
          ["Has to end in its window", of.must_end_in_window && "yes"],
          ["Deadline", of.deadline && html`${at(of.deadline)}, <${When} instant=${of.deadline} />`],
          ["Failed steps", (of.steps_failed > 0 || of.max_failures !== null) && `${of.steps_failed}${of.max_failures === null ? "" : `; it pauses after more than ${of.max_failures}`}`],
          ["Paused", switched(of.paused)],
          ["Resumed", switched(of.resumed)],
          ["Aborted", switched(of.aborted)],
          ["Description", of.description],
          ["Ticket", of.ticket],
        ]} />
        <${Steps} path=${path} page=${page} rollout=${of} filters=${{ ...lane, state }} after=${after} />
        <p><${Link} to=${withQuery("/events", { rollout: of.id, past: "true" })}>Events of this rollout<//></p>
      <//>`, "Rollout")}
  `;
}

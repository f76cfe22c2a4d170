// All rollouts: those in progress first.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link, setQuery } from "../router.js";
import { Badge, Empty, loaded, Page, When } from "../parts/basics.js";
import { Bar } from "../parts/bar.js";
import { RolloutLink } from "../parts/links.js";
import { plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

const PAGE = 50;
/** @type {Record<string, string>} */
const STATES = { running: "started", paused: "held", blocked: "held", aborting: "held", aborted: "over", expired: "over", done: "quiet" };

/** @param {{ of: { state: string } }} props */
export const RolloutState = ({ of }) => html`<${Badge} kind=${STATES[of.state]}>${of.state}<//>`;

/** @param {{ of: api.Rollout }} props */
const Row = ({ of }) => html`
  <tr>
    <td><${RolloutLink} id=${of.id}>${of.type} <code>${of.id.slice(0, 8)}</code><//></td>
    <td>${of.selection}${of.description && html` <span class="quiet">${of.description}</span>`}</td>
    <td><${RolloutState} of=${of} /></td>
    <td>
      ${of.steps_done.toLocaleString("en")} of ${plural(of.steps_total, "step")}
      <${Bar} counts=${{ done: of.steps_done, waiting: of.steps_total - of.steps_done }} states=${["done", "waiting"]} />
    </td>
    <td class="number" data-label="Machines">${of.machines.toLocaleString("en")}</td>
    <td data-label="Started"><${When} instant=${of.created_at} /> <span class="quiet">by ${of.by}</span></td>
    <td data-label="Ended">${of.ended_at && html`<${When} instant=${of.ended_at} />`}</td>
  </tr>
`;

/** @param {portal.Query} props */
export function Rollouts({ query }) {
  const [state, after] = [query.get("state") ?? "", query.get("after") ?? ""];
  const rollouts = useResource(withQuery("/v1/rollouts", { state, after, limit: PAGE }));
  return html`
    <${Page} title="Rollouts" aside=${html`<${Verbs} kind="rollouts" />`}>
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>State <select value=${state} onChange=${(event) => setQuery({ state: event.target.value, after: "" })}>
          <option value="">any</option>${Object.keys(STATES).map((name) => html`<option>${name}</option>`)}
        </select></label>
      </form>
      ${loaded(rollouts, (list) => html`
        ${list.length
          ? html`
              <table class="rows stacked">
                <caption><span class="aside">Those in progress first, then the latest</span></caption>
                <thead><tr><th>Rollout</th><th>Of</th><th>State</th><th>Progress</th><th class="number">Machines</th><th>Started</th><th>Ended</th></tr></thead>
                <tbody>${list.map((rollout) => html`<${Row} key=${rollout.id} of=${rollout} />`)}</tbody>
              </table>
            `
          : html`<${Empty}>${state || after ? "No rollout matches. Change the filter above." : "There is no rollout. Start one here, or with 'forewarn rollout start'."}<//>`}
        <p class="pages">
          ${after && html`<${Link} to=${withQuery("/rollouts", { state })}>First page<//>`}
          ${rollouts.next && html`<${Link} to=${withQuery("/rollouts", { state, after: rollouts.next })} rel="next">Older<//>`}
        </p>`)}
    <//>
  `;
}

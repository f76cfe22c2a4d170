// All rollouts: those in progress first.
import { html } from "../html.js";
import { Badge, When } from "../parts/basics.js";
import { Bar } from "../parts/bar.js";
import { RolloutLink } from "../parts/links.js";
import { List } from "../parts/list.js";
import { grouped, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

/** @type {Record<string, string>} */
const STATES = { running: "started", paused: "held", blocked: "held", aborting: "held", aborted: "over", expired: "over", done: "quiet" };

/** @param {{ of: { state: string } }} props */
export const RolloutState = ({ of }) => html`<${Badge} kind=${STATES[of.state]}>${of.state}<//>`;

// What a rollout is of, and how far it is.
/** @param {{ of: api.Rollout, children: portal.Children }} props */
export const RolloutRow = ({ of, children }) => html`
  <tr>
    <td><${RolloutLink} id=${of.id}>${of.type} <code>${of.id.slice(0, 8)}</code><//></td>
    <td>${of.selection}${of.description && html` <span class="quiet">${of.description}</span>`}</td>
    <td><${RolloutState} of=${of} /></td>
    <td>
      ${grouped(of.steps_done)} of ${plural(of.steps_total, "step")}
      <${Bar} counts=${{ done: of.steps_done, waiting: of.steps_total - of.steps_done }} states=${["done", "waiting"]} />
    </td>
    ${children}
  </tr>
`;

/** @param {{ of: api.Rollout }} props */
const Row = ({ of }) => html`
  <${RolloutRow} of=${of}>
    <td class="number" data-label="Machines">${grouped(of.machines)}</td>
    <td data-label="Started"><${When} instant=${of.created_at} /> <span class="quiet">by ${of.by}</span></td>
    <td data-label="Ended">${of.ended_at && html`<${When} instant=${of.ended_at} />`}</td>
  <//>
`;

/** @type {portal.Filter[]} */
const FILTERS = [{ name: "state", title: "State", choices: Object.fromEntries(Object.keys(STATES).map((name) => [name, name])) }];
/** @type {portal.Column[]} */
const COLUMNS = [{ title: "Rollout" }, { title: "Of" }, { title: "State" }, { title: "Progress" }, { title: "Machines", number: true }, { title: "Started" }, { title: "Ended" }];

/** @param {portal.Query} props */
export const Rollouts = ({ query }) => html`
  <${List} title="Rollouts" path="/v1/rollouts" page="/rollouts" filters=${FILTERS} columns=${COLUMNS} query=${query} noun="rollout" aside=${html`<${Verbs} kind="rollouts" />`}
    empty="There is no rollout. Start one here, or with 'forewarn rollout start'.">${(/** @type {api.Rollout[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
    <table class="rows stacked">
      <caption>${caption} <span class="aside">Those in progress first, then the latest</span></caption>
      ${head}
      <tbody>${list.map((rollout) => html`<${Row} key=${rollout.id} of=${rollout} />`)}</tbody>
    </table>`}<//>
`;

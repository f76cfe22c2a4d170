// One host: first of all, what is planned for it and why that waits; then its node and its machines.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { address } from "../router.js";
import { Badge, Facts, HEALTH, Labels, loaded, Page, When } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { Explanation, Hold } from "../parts/explanation.js";
import { Members } from "../parts/machine-table.js";
import { Latest } from "../parts/records.js";
import { at, duration } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

/** @param {{ of: api.HostPlan }} props */
const Plan = ({ of }) => html`
  <section class="plan">
    ${of.holds.length ? html`<ul>${of.holds.map((hold) => html`<${Hold} of=${hold} />`)}</ul>` : html`<p>${of.message}</p>`}
    <${EventTable} events=${of.events} separate caption=${of.events.length > 1 ? "These start together" : "Planned"} />
  </section>
`;

// Whether the node of a host, or its driver process, is connected.
/** @param {api.HostNode | api.HostDriver} of */
const state = (of) => html`${of.state}${of.since && html` since ${at(of.since)}, <${When} instant=${of.since} />`}`;

// All events of machines on the host that its explanation names.
/** @param {Partial<api.HostExplanation>} [explanation] */
const eventsIn = ({ plans = [], others = [] } = {}) => [...plans.flatMap((plan) => plan.events), ...others];

/** @param {{ name: string } & portal.Query} props */
export function Host({ name, query }) {
  const path = address("v1", "hosts", name);
  const explained = useResource(`${path}/explain`);
  const host = useResource(path);
  const badges = host.data && html`
    <div class="badges">
      <${Badge} kind=${HEALTH[host.data.health]}>${host.data.health}<//>
      ${host.data.cordoned && html`<${Badge} kind="started">cordoned<//>`}
      ${[host.data.node, host.data.driver].some((of) => of?.state === "disconnected") && html`<${Badge} kind="held">unreachable<//>`}
    </div>
  `;
  return html`
    <${Page} title=${`Host ${name}`} aside=${badges}>
      ${loaded(explained, (of) => html`
        <${Explanation} message=${of.message}>${of.plans.map((plan) => html`<${Plan} of=${plan} />`)}<//>`)}
      ${loaded(host, (of) => html`
        <${Verbs} kind="host" of=${of} />
        <${Facts} of=${[
          ["Health", html`${of.health}${of.since && html` since ${at(of.since)}`}`],
          ["Note", of.note],
          ["Cordoned", of.cordoned && (of.cordon_note || "yes")],
          ["Node", of.node ? state(of.node) : "none has joined for this host"],
          ["Version of the node", of.node?.version],
          ["Lag of the node", of.node && of.node.lag !== null && (of.node.lag < 1 ? "none" : duration(of.node.lag * 1_000))],
          ["Node last heard", of.node?.heard && html`<${When} instant=${of.node.heard} />`],
          ["Driver process", of.driver && state(of.driver)],
          ["Labels", html`<${Labels} of=${of.labels} />`],
        ]} />`)}
      <${Members} of=${{ host: name }} page=${address("hosts", name)} events=${eventsIn(explained.data)} after=${query.get("after") ?? ""} without="Host" empty="No machine is on this host." />
      <${Latest} of=${{ host: name }} />
    <//>
  `;
}

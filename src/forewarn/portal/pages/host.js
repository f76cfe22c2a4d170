// One host: first of all, what is planned for it and why that waits; then its node and its machines.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Badge, Empty, Facts, HEALTH, Labels, loaded, Page, When } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { Explanation, Hold } from "../parts/explanation.js";
import { MachineTable } from "../parts/machine-table.js";
import { Latest } from "../parts/records.js";
import { at, duration, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";


/** @param {{ of: api.HostPlan }} props */
const Plan = ({ of }) => html`
  <section class="plan">
    ${of.holds.length ? html`<ul>${of.holds.map((hold) => html`<${Hold} of=${hold} />`)}</ul>` : html`<p>${of.message}</p>`}
    <${EventTable} events=${of.events} separate caption=${of.events.length > 1 ? "These start together" : "Planned"} />
  </section>
`;

/** @param {api.HostNode | null} of */
const node = (of) =>
  of && {
    state: html`${of.state}${of.since && html` since ${at(of.since)}, <${When} instant=${of.since} />`}`,
    lag: of.lag !== null && (of.lag < 1 ? "none" : duration(of.lag * 1_000)),
    heard: of.heard && html`<${When} instant=${of.heard} />`,
  };

const PAGE = 100;

/** @param {{ name: string, events: Record<string, api.Event>, after: string }} props */
function Machines({ name, events, after }) {
  const machines = useResource(withQuery("/v1/machines", { host: name, limit: PAGE, after }));
  const page = address("hosts", name);
  return html`
    ${loaded(machines, (list) => html`
      ${list.length
        ? html`<${MachineTable} machines=${list} events=${events} without="Host" caption=${machines.next || after ? `${plural(list.length, "machine")} on this page` : plural(list.length, "machine")} />`
        : html`<${Empty}>${after ? "There is no machine on this page." : "No machine is on this host."}<//>`}
      <p class="pages">
        ${after && html`<${Link} to=${page}>First machines<//>`}
        ${machines.next && html`<${Link} to=${withQuery(page, { after: machines.next })} rel="next">Next machines<//>`}
      </p>`)}
  `;
}

// All events of machines on the host that its explanation names, by their ids.
/** @param {Partial<api.HostExplanation>} [explanation] */
const eventsIn = ({ plans = [], others = [] } = {}) => Object.fromEntries([...plans.flatMap((plan) => plan.events), ...others].map((event) => [event.id, event]));

/** @param {{ name: string } & portal.Query} props */
export function Host({ name, query }) {
  const path = address("v1", "hosts", name);
  const explained = useResource(`${path}/explain`);
  const host = useResource(path);
  const badges = host.data && html`
    <div class="badges">
      <${Badge} kind=${HEALTH[host.data.health]}>${host.data.health}<//>
      ${host.data.cordoned && html`<${Badge} kind="started">cordoned<//>`}
      ${host.data.node?.state === "disconnected" && html`<${Badge} kind="held">disconnected<//>`}
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
          ["Node", of.node ? node(of.node)?.state : "none has joined for this host"],
          ["Version of the node", of.node?.version],
          ["Lag of the node", node(of.node)?.lag],
          ["Node last heard", node(of.node)?.heard],
          ["Labels", html`<${Labels} of=${of.labels} />`],
        ]} />`)}
      <${Machines} name=${name} events=${eventsIn(explained.data)} after=${query.get("after") ?? ""} />
      <${Latest} of=${{ host: name }} />
    <//>
  `;
}

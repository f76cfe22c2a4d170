// One machine: where it is, whether it asks for its events, and what happens to it.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Badge, Empty, Facts, Labels, loaded, Page, When } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { EventLink, GroupLink, HostLink } from "../parts/links.js";
import { LookingBack } from "../parts/looking-back.js";
import { Latest } from "../parts/records.js";
import { at, grouped, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

/** @type {Record<string, string>} */
const KINDS = { listening: "quiet", silent: "over", "never-polled": "over" };
/** @type {Record<string, string>} */
const WORDS = { listening: "asks for its events", silent: "silent", "never-polled": "has never polled" };

/** @param {{ name: string, group: string }} props */
function Events({ name, group }) {
  const events = useResource(withQuery("/v1/events", { machine: name, group }));
  return html`
    ${loaded(events, (list) =>
      list.length
        ? html`<${EventTable} events=${list} caption=${plural(list.length, "event")} explained />`
        : html`<${Empty}>Nothing is announced to this machine. <${Link} to=${withQuery("/events", { machine: name, past: "true" })}>Events that are over<//><//>`)}
  `;
}

/** @param {{ of: api.Machine }} props */
const Where = ({ of }) => {
  if (!of.host) return "not known";
  return html`
    <${HostLink} name=${of.host} />
    ${of.polls_on && html`, but it polls on <${HostLink} name=${of.polls_on} />`}
    ${of.drift && of.seen_on.join() !== of.host && html`, but its driver sees it on ${of.seen_on.length ? of.seen_on.map((host) => html`<${HostLink} name=${host} /> `) : "no host"}`}
    ${of.inventory_host !== of.host && html` <span class="quiet">(${of.inventory_host || "no host"} in the fleet file${of.disputed ? ", which was applied after the machine had moved" : ""})</span>`}
  `;
};

/** @param {{ name: string }} props */
export function Machine({ name }) {
  const machine = useResource(`/v1/machines/${encodeURIComponent(name)}`);
  return html`
    <${Page} title=${`Machine ${name}`} aside=${machine.data && html`
      <div class="badges">
        <${Badge} kind=${machine.data.gone ? "over" : KINDS[machine.data.coverage]}>${machine.data.gone || WORDS[machine.data.coverage]}<//>
        ${machine.data.drift && html`<${Badge} kind="held">${machine.data.drift}<//>`}
        ${machine.data.not_back && !machine.data.gone && html`<${Badge} kind="held">not back<//>`}
        ${machine.data.spot && html`<${Badge} kind="scheduled">spot<//>`}
      </div>`}>
      ${loaded(machine, (of) => html`
        <${Events} name=${of.name} group=${of.group} />
        <${LookingBack} machine=${of.name} group=${of.group} />
        <${Verbs} kind="machine" of=${of} />
        <${Facts} of=${[
          ["Group", html`<${GroupLink} name=${of.group} /> <span class="quiet">${of.kind}</span>`],
          ["Host", html`<${Where} of=${of} />`],
          ["Update domain", String(of.update_domain)],
          ["Fault domain", String(of.fault_domain)],
          ["Last poll", of.last_poll ? html`${at(of.last_poll)}, <${When} instant=${of.last_poll} />` : "never"],
          ["Not back", of.not_back && html`since ${at(of.not_back.since)}, when <${EventLink} id=${of.not_back.event} /> was carried out`],
          ["Polls", of.polls > 0 && `${grouped(of.polls)}, the last with api-version ${of.api_version}`],
          ["Last approval or report", of.last_answer && at(of.last_answer)],
          ["Ignored", of.ignored_events > 0 && `${plural(of.ignored_events, "event")} that it was shown started without an approval`],
          ["Addresses", of.addresses.join(", ")],
          ["Metadata endpoint", html`<code>${of.metadata_url}</code>`],
          ["Name in the guest", of.computer_name],
          ["vmId", html`<code>${of.vm_id}</code>`],
          ["Labels", html`<${Labels} of=${of.labels} />`],
          ["Tags", Object.keys(of.tags).length > 0 && html`<${Labels} of=${of.tags} />`],
        ]} />
        ${of.coverage === "never-polled" && !of.gone && html`<p class="quiet">No program on this machine asks for its events, so nothing there can prepare for them. Start 'forewarn agent' there, or a program of your own.</p>`}
        <${Latest} of=${{ machine: of.name }} />`)}
    <//>
  `;
}

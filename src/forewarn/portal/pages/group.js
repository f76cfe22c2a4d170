// One group: its policy, when maintenance may start, and its machines by update domain.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Badge, Empty, Facts, Labels, loaded, Page, When } from "../parts/basics.js";
import { Bar } from "../parts/bar.js";
import { EventTable } from "../parts/event-table.js";
import { Legend, STATES, total } from "../parts/fleet-map.js";
import { WindowsLink } from "../parts/links.js";
import { Members } from "../parts/machine-table.js";
import { Latest } from "../parts/records.js";
import { at, duration, grouped, plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

/** @param {{ name: string }} props */
function Windows({ name }) {
  const windows = useResource(`/v1/groups/${encodeURIComponent(name)}/windows`);
  return html`
    ${loaded(windows, ({ open, configurations, times }) => html`
      <p>
        ${open ? "Maintenance of this group may start now" : "Maintenance of this group may not start now"}${configurations.length ? html`, limited by <${WindowsLink}>${configurations.join("; ")}<//>.` : "; no window or blackout limits it."}
      </p>
      ${times.length > 0 && html`
        <table class="rows narrow">
          <caption>When maintenance may start</caption>
          <thead><tr><th>Opens</th><th>Closes</th></tr></thead>
          <tbody>
            ${times.map(({ opens, closes }) => html`
              <tr key=${opens}>
                <td>${opens ? html`${at(opens)}, <${When} instant=${opens} />` : "open now"}</td>
                <td>${closes ? html`${at(closes)}, <${When} instant=${closes} />` : "never"}</td>
              </tr>`)}
          </tbody>
        </table>`}`)}
  `;
}

/** @param {{ name: string }} props */
function Domains({ name }) {
  const overview = useResource(withQuery("/v1/overview", { by: "group", name }));
  return html`
    ${loaded(overview, ({ rows }) => {
      const domains = rows[0]?.domains ?? [];
      const most = Math.max(1, ...domains.map(total));
      return html`
        <table class="rows domains">
          <caption>Machines by update domain <${Legend} /></caption>
          <thead><tr><th>Domain</th><th></th><th class="number">machines</th>${STATES.map((state) => html`<th class="number">${state}</th>`)}</tr></thead>
          <tbody>
            ${domains.map((domain) => html`
              <tr key=${domain.update_domain}>
                <td>${domain.update_domain}</td>
                <td><${Bar} counts=${domain} states=${STATES} most=${most} /></td>
                <td class="number">${total(domain)}</td>
                ${STATES.map((state) => html`<td class="number">${domain[state] || ""}</td>`)}
              </tr>`)}
          </tbody>
        </table>
      `;
    })}
  `;
}

/** @param {api.Coverage} of */
const covered = (of) =>
  [
    [of.listening, "asks", "ask"],
    [of.silent, "is silent", "are silent"],
    [of.never_polled, "has never polled", "have never polled"],
    [of.never_approves, "never approves", "never approve"],
  ]
    .filter(([count]) => count)
    .map(([count, one, many]) => `${grouped(Number(count))} ${count === 1 ? one : many}`)
    .join(", ");

/** @param {{ name: string } & portal.Query} props */
export function Group({ name, query }) {
  const group = useResource(`/v1/groups/${encodeURIComponent(name)}`);
  const events = useResource(withQuery("/v1/events", { group: name }));
  return html`
    <${Page} title=${`Group ${name}`} aside=${group.data && html`
      <div class="badges"><${Badge} kind=${group.data.enabled ? "quiet" : "over"}>${group.data.enabled ? "enabled: its machines poll" : "not enabled: no machine polls"}<//></div>`}>
      ${loaded(group, (of) => html`
        <${Verbs} kind="group" of=${of} />
        ${!of.enabled && html`<p class="quiet">Scheduled Events are enabled for this group as soon as one of its machines asks for them.</p>`}
        <${Facts} of=${[
          ["Kind", of.kind],
          ["Machines", `${grouped(of.machines.length)}${of.machines.length ? `: ${covered(of.coverage)}` : ""}`],
          ["DocumentIncarnation", String(of.incarnation)],
          ["Starts without approval", of.auto_approve.length ? `user events of type ${of.auto_approve.join(", ")}` : "no user event"],
          ["While all its machines are down", of.all_instances_down && "user events start without approval"],
          ["Event Grid, Resource Graph", of.event_grid && "its events are published there"],
          ["User events at a time", of.user_event_limit === null ? "any number" : String(of.user_event_limit)],
          ["Notice before a deletion", of.terminate_notice === null ? "deletions are not announced" : duration(of.terminate_notice * 1_000)],
          ["Notice before a reimage", of.image_notice !== null && duration(of.image_notice * 1_000)],
          ["May postpone", of.may_postpone ?? "never"],
          ["Events are over", of.over_when && { heard: "once their machines have polled again", "carried-out": "when they were carried out" }[of.over_when]],
          ["Machines are back within", of.back_within !== null && duration(of.back_within * 1_000)],
          ["Windows", of.windows.join("; ") || "none of its own"],
          ["Blackouts", of.blackouts.join("; ") || "none of its own"],
          ["Labels", html`<${Labels} of=${of.labels} />`],
          ["Location", of.location + (of.zone && `, zone ${of.zone}`)],
          ["Resource group", of.resource_group],
          ["Scale set", of.scale_set],
        ]} />
        <${Windows} name=${name} />
        <${Domains} name=${name} />
        ${loaded(events, (list) => html`
          ${list.length
            ? html`<${EventTable} events=${list} caption=${plural(list.length, "event")} />`
            : html`<${Empty}>Nothing is announced to this group. <${Link} to=${withQuery("/events", { group: name, past: "true" })}>Events that are over<//><//>`}
          <${Members} of=${{ group: name }} page=${address("groups", name)} events=${list} after=${query.get("after") ?? ""} without="Group" empty="There is no machine in this group. Add some with 'forewarn apply'." />`)}
        <${Latest} of=${{ group: name }} />`)}
    <//>
  `;
}

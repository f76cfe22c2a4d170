// What runs, what is next, what is unwell.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Empty, Facts, Loaded, Page } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { at, plural } from "../parts/text.js";

const Unwell = () => {
  const ready = useResource("/readyz");
  const report = ready.data ?? ready.error?.body;
  if (!report?.parts) return null;
  const wrong = [...Object.entries(report.parts).filter(([, said]) => said !== "ok"), ...Object.entries(report.warnings ?? {})];
  if (!wrong.length) return html`<p class="well">Everything works.</p>`;
  return html`<ul class="unwell">${wrong.map(([part, said]) => html`<li><strong>${part}</strong> ${said}</li>`)}</ul>`;
};

export function Status() {
  const status = useResource("/v1/status");
  const events = useResource("/v1/events");
  return html`
    <${Page} title="Status">
      <${Unwell} />
      <${Loaded} of=${events}>${(list) => {
        const started = list.filter((event) => event.status === "Started");
        const next = list.filter((event) => event.status === "Scheduled").sort((a, b) => a.not_before.localeCompare(b.not_before));
        return html`
          ${started.length > 0 && html`<${EventTable} events=${started} caption="Under way" />`}
          ${next.length > 0
            ? html`<${EventTable} events=${next.slice(0, 10)} caption="Next" />`
            : html`<${Empty}>Nothing is announced.<//>`}
          ${next.length > 10 && html`<p><${Link} to="/events?status=Scheduled">${plural(next.length, "event")} in all<//></p>`}
        `;
      }}<//>
      <${Loaded} of=${status}>${(of) => html`
        <${Facts} of=${[
          ["Machines", of.machines.toLocaleString("en")],
          ["Groups", of.groups.toLocaleString("en")],
          ["Ask for their events", of.coverage.listening.toLocaleString("en")],
          ["Silent", (of.coverage.silent + of.coverage.never_polled).toLocaleString("en")],
          ["Unknown callers", of.unknown_callers || ""],
          ["Service's time", `${at(of.clock.now)}${of.clock.virtual ? ", a virtual clock" : ""}`],
          ["Next", of.clock.next_due && at(of.clock.next_due)],
          ["Control node", `${of.control_node.name} (${of.control_node.role})`],
          ["Version", of.version],
        ]} />`}<//>
    <//>
  `;
}

// One event: first of all, why it has not started; then who knows of it, and what has happened so far.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { address } from "../router.js";
import { Badge, Facts, loaded, Page } from "../parts/basics.js";
import { nameOf, stateOf } from "../parts/event-table.js";
import { Details, Explanation, Hold } from "../parts/explanation.js";
import { Actor, Cause, GroupLink, HostLink, MachineLink } from "../parts/links.js";
import { Records } from "../parts/records.js";
import { at, duration } from "../parts/text.js";
import { Timeline } from "../parts/timeline.js";
import { back, stoodStill } from "../parts/looking-back.js";
import { Verbs } from "../parts/verbs.js";

// When a machine was first shown an event. `known`: whether machines without a time have not been shown it.
/**
 * @param {api.EventDetails} event
 * @param {string} name
 * @param {Record<string, string>} seen
 * @param {Record<string, unknown>} silent
 * @param {boolean} known
 */
function firstShown(event, name, seen, silent, known) {
  if (Object.hasOwn(seen, name)) {
    const late = event.started_at && Date.parse(seen[name]) > Date.parse(event.started_at);
    return `${at(seen[name])}${late ? ", after it had started" : ""}`;
  }
  if (!known) return "not known";
  if (event.started_at) return "not before it started";
  if (Object.hasOwn(silent, name)) return "not yet; it does not ask for its events";
  return event.ended_at ? "never" : "not yet";
}

/** @param {{ event: api.EventDetails, seen: Record<string, string>, silent: Record<string, unknown>, known: boolean }} props */
const Machines = ({ event, seen, silent, known }) => {
  const moving = Object.keys(event.targets).length > 0;
  const measured = event.ended_at || Object.keys(event.away).length > 0;
  const { data: details } = useResource(address("v1", "events", event.id));
  return html`
    <table class="rows">
      <caption>Machines</caption>
      <thead><tr><th>Machine</th><th>First shown</th><th>Ready</th>${moving && html`<th>Moves to</th>`}${measured && html`<th>Stood still</th>`}${event.ended_at && html`<th>Back</th>`}</tr></thead>
      <tbody>
        ${event.machines.map(
          (name) => html`
            <tr key=${name}>
              <td><${MachineLink} name=${name} /></td>
              <td>${firstShown(event, name, seen, silent, known)}</td>
              <td>${event.ready.includes(name) ? "yes" : ""}</td>
              ${moving && html`<td><${HostLink} name=${event.targets[name]} /></td>`}
              ${measured && html`<td>${stoodStill(event, name)}</td>`}
              ${event.ended_at && html`<td>${details && back(details, name)}</td>`}
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
};

// The reasons follow, so they are not said twice.
/** @param {api.Explanation} explanation */
const severalReasons = ({ event, holds }) => `${event.approved ? "Approved, but waiting" : "Waiting"} for ${holds.length} reasons:`;

/** @param {{ name: string }} props */
export function Event({ name: id }) {
  const explained = useResource(`/v1/events/${encodeURIComponent(id)}/explain`);
  const history = useResource(`/v1/history?event=${encodeURIComponent(id)}&oldest_first=true&limit=200`);
  return html`
    ${loaded(explained, (of) => {
      const { event } = of;
      const seen = of.seen_by;
      const started = history.data?.records.find(({ what }) => what === "started");
      return html`
        <${Page} title=${nameOf(event)}
          aside=${html`<${Badge} kind=${stateOf(event)}>${event.held || event.status}<//>`}>
          <${Explanation} message=${of.holds.length > 1 && event.status === "Scheduled" ? severalReasons(of) : of.message}>
            ${of.holds.length === 1 ? html`<${Details} of=${of.holds[0]} />` : html`<ul>${of.holds.map((hold) => html`<${Hold} of=${hold} />`)}</ul>`}
          <//>
          <${Verbs} kind="event" of=${event} more=${of} />
          <${Timeline} event=${event} seenBy=${seen} />
          <${Facts} of=${[
            ["Id", html`<code>${event.id}</code>`],
            ["Group", html`<${GroupLink} name=${event.group} />`],
            ["Host", event.host && html`<${HostLink} name=${event.host} />`],
            ["Update domain", String(event.update_domain)],
            ["Source", event.source],
            ["Approved by", event.started_at && (event.approved ? html`<${Actor} name=${event.approved.by} />` : "nobody")],
            ["Duration of the impact", event.duration < 0 ? "unknown" : event.duration ? duration(event.duration * 1_000) : "none"],
            ["Waits for", event.waits_for.length > 0 && `${event.waits_for.join(", ")}: it was carried out, and is over once they have polled again`],
            ["Not back", event.not_back.join(", ")],
            ["Description", event.description],
            ["Ticket", event.ticket],
            ["Cause", event.cause && html`<${Cause} of=${event.cause} />`],
          ]} />
          <${Machines} event=${event} seen=${seen} silent=${of.not_listening} known=${started?.shown !== null} />
          ${loaded(history, ({ records }) => html`<${Records} of=${records} caption="What has happened" about=${false} />`)}
        <//>
      `;
    }, "Event")}
  `;
}

// One event: first of all, why it has not started; then who knows of it, and what has happened so far.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { address, Link } from "../router.js";
import { Badge, Facts, Loaded, Page, When } from "../parts/basics.js";
import { stateOf } from "../parts/event-table.js";
import { at } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

const Explanation = ({ of }) => html`
  <section class="explanation" aria-live="polite">
    <p class="said">${of.message}</p>
    <ul>
      ${of.holds.map(
        (hold) => html`
          <li>
            <strong>${hold.message}</strong>${hold.until && html` <span class="quiet">until ${at(hold.until)}, <${When} instant=${hold.until} /></span>`}
            ${hold.unblocked_by && html`<p>It goes on through ${hold.unblocked_by}.</p>`}
          </li>
        `,
      )}
    </ul>
  </section>
`;

const Machines = ({ event, seen, silent }) => {
  return html`
    <table class="rows">
      <caption>Machines</caption>
      <thead><tr><th>Machine</th><th>First shown</th><th>Ready</th></tr></thead>
      <tbody>
        ${event.machines.map(
          (name) => html`
            <tr key=${name}>
              <td><${Link} to=${address("machines", name)}>${name}<//></td>
              <td>${seen[name] ? at(seen[name]) : name in silent ? "not yet; it does not ask for its events" : "not yet"}</td>
              <td>${event.ready.includes(name) ? "yes" : ""}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
};

export const Records = ({ of, caption }) => html`
  <table class="rows">
    <caption>${caption}</caption>
    <thead><tr><th>When</th><th>What</th><th>By</th><th>Note</th></tr></thead>
    <tbody>
      ${of.map(
        (record) => html`
          <tr key=${record.seq}>
            <td><time datetime=${record.at}>${at(record.at)}</time></td>
            <td>${record.what}</td>
            <td>${record.by}</td>
            <td>${record.note}</td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

export function Event({ id }) {
  const explained = useResource(`/v1/events/${encodeURIComponent(id)}/explain`);
  const history = useResource(`/v1/history?event=${encodeURIComponent(id)}&oldest_first=true&limit=200`);
  return html`
    <${Loaded} of=${explained}>${(of) => {
      const { event } = of;
      return html`
        <${Page} title=${`${event.type} of ${event.machines.length === 1 ? event.machines[0] : `${event.machines.length} machines`}`}
          aside=${html`<${Badge} kind=${stateOf(event)}>${event.held || event.status}<//>`}>
          <${Explanation} of=${of} />
          <${Verbs} kind="event" of=${event} />
          <${Facts} of=${[
            ["Id", html`<code>${event.id}</code>`],
            ["Group", html`<${Link} to=${address("groups", event.group)}>${event.group}<//>`],
            ["Host", event.host && html`<${Link} to=${address("hosts", event.host)}>${event.host}<//>`],
            ["Update domain", String(event.update_domain)],
            ["NotBefore", html`${at(event.not_before)}`],
            ["Announced", html`${at(event.raised_at)} by ${event.raised_by}`],
            ["Approved", event.approved && html`${at(event.approved.at)} by ${event.approved.by}`],
            ["Started", at(event.started_at)],
            ["Ended", event.ended_at && `${at(event.ended_at)} ${event.ending}`],
            ["Description", event.description],
            ["Ticket", event.ticket],
          ]} />
          <${Machines} event=${event} seen=${of.seen_by} silent=${of.not_listening} />
          <${Loaded} of=${history}>${({ records }) => html`<${Records} of=${records} caption="What has happened" />`}<//>
        <//>
      `;
    }}<//>
  `;
}

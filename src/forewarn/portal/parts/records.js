// Records of the history as a table.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { withQuery } from "../api.js";
import { Link } from "../router.js";
import { Empty, loaded } from "./basics.js";
import { Actor, Cause, EventLink, GroupLink, HostLink, MachineLink, RolloutLink, Several } from "./links.js";
import { Head } from "./list.js";
import { at, listed } from "./text.js";

const LATEST = 15;

/** @type {portal.Column[]} */
export const RECORD_COLUMNS = [{ title: "When" }, { title: "What" }, { title: "About" }, { title: "By" }, { title: "Note" }];

/** @param {api.HistoryRecord} record */
const ofRollout = (record) => record.what.startsWith("rollout-");

// Which machines of an event that has started had not been shown it before.
/** @param {api.HistoryRecord} record */
const uninformed = ({ shown }) => Object.entries(shown ?? {}).filter(([, since]) => !since).map(([name]) => name);

// For how long machines stood still, as their driver has measured it.
/** @param {api.HistoryRecord} record */
const stoodStill = ({ answer }) => listed(Object.entries(answer.away ?? {}).map(([name, seconds]) => `${name} for ${seconds} s`));

/** @param {{ of: api.HistoryRecord }} props */
const Why = ({ of }) => (of.cause && !ofRollout(of) && !of.what.startsWith("halt-") ? html`<span class="quiet"><${Cause} of=${of.cause} /></span>` : null);

/** @param {{ of: api.HistoryRecord }} props */
const About = ({ of }) => html`
  ${ofRollout(of) && of.cause && html`rollout <${RolloutLink} id=${of.cause} /> `}
  ${of.event && html`<${EventLink} id=${of.event}>${of.type || "event"} <code>${of.event.slice(0, 8)}</code><//> `}
  ${of.machines.length > 0 && html`<${Several} of=${of.machines} as=${MachineLink} />`}
  ${of.group && html` <span class="quiet">${of.machines.length ? "in" : "group"} <${GroupLink} name=${of.group} /></span>`}
  ${of.host && html` <span class="quiet">${of.machines.length ? "on" : "host"} <${HostLink} name=${of.host} /></span>`}
`;

// `about`: whether the records are about different things, so that each has to say about what.
/** @param {{ of: api.HistoryRecord[], caption: portal.Children, head?: portal.Children, about?: boolean }} props */
export const Records = ({ of, caption, head, about = true }) => html`
  <table class="rows records">
    <caption>${caption}</caption>
    ${head ?? html`<${Head} of=${RECORD_COLUMNS.filter(({ title }) => about || title !== "About")} />`}
    <tbody>
      ${of.map(
        (record) => html`
          <tr key=${record.seq}>
            <td><time datetime=${record.at}>${at(record.at)}</time></td>
            <td class="whole">${record.what}</td>
            ${about && html`<td><${About} of=${record} /></td>`}
            <td class="by"><${Actor} name=${record.by} /></td>
            <td>${record.note}${uninformed(record).length > 0 && html`; not shown before to <${Several} of=${uninformed(record)} as=${MachineLink} />`}${stoodStill(record) && `; stood still: ${stoodStill(record)}`} ${about && html`<${Why} of=${record} />`}</td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

// The latest records about one thing, and where the others are.
/** @param {{ of: Record<string, string> }} props */
export function Latest({ of }) {
  const history = useResource(withQuery("/v1/history", { ...of, limit: LATEST }));
  return html`
    ${loaded(history, ({ records, next }) =>
      records.length
        ? html`
            <${Records} of=${records} caption="History, the newest first" />
            ${next && html`<p><${Link} to=${withQuery("/history", of)}>All of its history<//></p>`}
          `
        : html`<${Empty}>Nothing is recorded.<//>`)}
  `;
}

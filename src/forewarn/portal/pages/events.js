// All events that are announced or under way.
import { html } from "../html.js";
import { useSession } from "../session.js";
import { EVENT_COLUMNS, EventTable } from "../parts/event-table.js";
import { LABEL } from "../parts/filters.js";
import { List } from "../parts/list.js";

/** @param {portal.Query} props */
export function Events({ query }) {
  const types = useSession().event_types.map(({ name }) => [name, name]);
  /** @type {portal.Filter[]} */
  const filters = [
    { name: "status", title: "Status", choices: { Scheduled: "Scheduled", Started: "Started" } },
    { name: "type", title: "Type", choices: Object.fromEntries(types) },
    { name: "group", title: "Group" },
    { name: "machine", title: "Machine" },
    { name: "host", title: "Host" },
    LABEL,
    { name: "past", title: "Those that are over", choices: { "": "left out", true: "too" }, clears: "order" },
    { name: "order", title: "Order", choices: { "": "as announced", not_before: "what starts next" }, clears: "past" },
    { name: "rollout", title: "Rollout", example: "id" },
  ];
  return html`
    <${List} title="Events" path="/v1/events" page="/events" filters=${filters} columns=${EVENT_COLUMNS} query=${query} noun="event" empty="Nothing is announced or under way.">${(/** @type {api.Event[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
      <${EventTable} events=${list} caption=${caption} head=${head} />`}<//>
  `;
}

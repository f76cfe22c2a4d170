// All events that are announced or under way.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link, setQuery } from "../router.js";
import { useSession } from "../session.js";
import { Empty, loaded, Page } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { RolloutLink } from "../parts/links.js";
import { plural } from "../parts/text.js";
import { TextFilter } from "../parts/text-filter.js";

const FILTERS = ["status", "type", "group", "machine", "host", "label", "rollout", "order"];
const PAGE = 100;

/** @param {portal.Query} props */
export function Events({ query }) {
  const session = useSession();
  const filters = Object.fromEntries([...FILTERS, "past"].map((name) => [name, query.get(name)]));
  const after = query.get("after");
  const events = useResource(withQuery("/v1/events", { ...filters, after, limit: PAGE }));
  /** @param {string} name */
  const change = (name) => (/** @type {portal.Input} */ event) => setQuery({ [name]: event.target.value.trim(), after: "" });
  return html`
    <${Page} title="Events">
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>Status <select value=${query.get("status") ?? ""} onChange=${change("status")}>
          <option value="">any</option><option>Scheduled</option><option>Started</option>
        </select></label>
        <label>Type <select value=${query.get("type") ?? ""} onChange=${change("type")}>
          <option value="">any</option>${session.event_types.map(({ name }) => html`<option>${name}</option>`)}
        </select></label>
        ${[["group", "Group"], ["machine", "Machine"], ["host", "Host"], ["label", "Label"]].map(
          ([name, title]) => html`<${TextFilter} key=${name} title=${title} value=${query.get(name) ?? ""} onChange=${change(name)} />`,
        )}
        <label>Order <select value=${query.get("order") ?? ""} onChange=${(event) => setQuery({ order: event.target.value, past: "", after: "" })}>
          <option value="">as announced</option><option value="not_before">what starts next</option>
        </select></label>
        <label><input type="checkbox" checked=${query.get("past") === "true"}
          onChange=${(event) => setQuery({ past: event.target.checked ? "true" : "", order: "", after: "" })} /> also those that are over</label>
      </form>
      ${filters.rollout && html`<p>Only those of rollout <${RolloutLink} id=${filters.rollout} />. <${Link} to=${withQuery("/events", { ...filters, rollout: "" })}>Show all<//></p>`}
      ${loaded(events, (list) => html`
        ${list.length
          ? html`<${EventTable} events=${list} caption=${events.next || after ? `${plural(list.length, "event")} on this page` : plural(list.length, "event")} />`
          : html`<${Empty}>${Object.values(filters).some(Boolean) ? "No event matches. Change the filters above." : "Nothing is announced or under way."}<//>`}
        <p class="pages">
          ${after && html`<${Link} to=${withQuery("/events", filters)}>First page<//>`}
          ${events.next && html`<${Link} to=${withQuery("/events", { ...filters, after: events.next })} rel="next">More<//>`}
        </p>`)}
    <//>
  `;
}

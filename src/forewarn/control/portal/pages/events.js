// All events that are announced or under way.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { setQuery } from "../router.js";
import { Empty, Loaded, Page } from "../parts/basics.js";
import { EventTable } from "../parts/event-table.js";
import { plural } from "../parts/text.js";

const FILTERS = ["status", "type", "group", "machine", "host", "rollout"];
const TYPES = ["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"];

export function Events({ query }) {
  const wanted = new URLSearchParams();
  for (const name of [...FILTERS, "past"]) if (query.get(name)) wanted.set(name, query.get(name));
  const events = useResource(`/v1/events?${wanted}`);
  const change = (name) => (event) => setQuery({ [name]: event.target.value });
  return html`
    <${Page} title="Events">
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>Status <select value=${query.get("status") ?? ""} onChange=${change("status")}>
          <option value="">any</option><option>Scheduled</option><option>Started</option>
        </select></label>
        <label>Type <select value=${query.get("type") ?? ""} onChange=${change("type")}>
          <option value="">any</option>${TYPES.map((type) => html`<option>${type}</option>`)}
        </select></label>
        ${[["group", "Group"], ["machine", "Machine"], ["host", "Host"]].map(
          ([name, title]) => html`<label>${title} <input value=${query.get(name) ?? ""} onChange=${change(name)} /></label>`,
        )}
        <label><input type="checkbox" checked=${query.get("past") === "true"}
          onChange=${(event) => setQuery({ past: event.target.checked ? "true" : "" })} /> also those that are over</label>
      </form>
      <${Loaded} of=${events}>${(list) =>
        list.length
          ? html`<${EventTable} events=${list} caption=${plural(list.length, "event")} />`
          : html`<${Empty}>Nothing is announced or under way.<//>`}<//>
    <//>
  `;
}

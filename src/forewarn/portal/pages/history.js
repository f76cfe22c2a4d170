// The history: who did what, the newest first.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Empty, loaded, Page } from "../parts/basics.js";
import { Filters } from "../parts/filters.js";
import { Records } from "../parts/records.js";

const PAGE = 100;
/** @type {portal.Filter[]} */
const FILTERS = [
  { name: "machine", title: "Machine", example: "web_0" },
  { name: "group", title: "Group", example: "web" },
  { name: "host", title: "Host", example: "host-a" },
  { name: "event", title: "Event", example: "id, or its beginning" },
  { name: "what", title: "What", example: "raised,approved" },
  { name: "since", title: "Since", example: "2h, or a time" },
  { name: "until", title: "Until", example: "1h, or a time" },
];

/** @param {portal.Query} props */
export function History({ query }) {
  const filters = Object.fromEntries(FILTERS.map(({ name }) => [name, query.get(name)]));
  const before = query.get("before");
  const history = useResource(withQuery("/v1/history", { ...filters, before, limit: PAGE }));
  const filtered = Object.values(filters).some(Boolean);
  return html`
    <${Page} title="History">
      <${Filters} of=${FILTERS} page="/history" query=${query} />
      ${loaded(history, ({ records, next }) => html`
        ${records.length
          ? html`<${Records} of=${records} caption=${html`<span class="aside">The newest first</span>`} />`
          : html`<${Empty}>${filtered || before ? "No record matches. Change the filters above." : "Nothing has happened yet."}<//>`}
        <p class="pages">
          ${before && html`<${Link} to=${withQuery("/history", filters)}>Newest<//>`}
          ${next && html`<${Link} to=${withQuery("/history", { ...filters, before: next })} rel="next">Older<//>`}
        </p>`)}
    <//>
  `;
}

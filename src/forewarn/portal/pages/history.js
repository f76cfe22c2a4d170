// The history: who did what, the newest first.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link, setQuery } from "../router.js";
import { Empty, loaded, Page } from "../parts/basics.js";
import { Records } from "../parts/records.js";
import { TextFilter } from "../parts/text-filter.js";

const PAGE = 100;
const FILTERS = [
  ["machine", "Machine", "web_0"],
  ["group", "Group", "web"],
  ["host", "Host", "host-a"],
  ["event", "Event", "id, or its beginning"],
  ["what", "What", "raised,approved"],
  ["since", "Since", "2h, or a time"],
  ["until", "Until", "1h, or a time"],
];

/** @param {portal.Query} props */
export function History({ query }) {
  const filters = Object.fromEntries(FILTERS.map(([name]) => [name, query.get(name)]));
  const before = query.get("before");
  const history = useResource(withQuery("/v1/history", { ...filters, before, limit: PAGE }));
  const filtered = Object.values(filters).some(Boolean);
  return html`
    <${Page} title="History">
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        ${FILTERS.map(
          ([name, title, example]) => html`
            <${TextFilter} key=${name} title=${title} value=${query.get(name) ?? ""} example=${example}
              onChange=${(event) => setQuery({ [name]: event.target.value.trim(), before: "" })} />
          `,
        )}
        ${filtered && html`<${Link} to="/history">Clear<//>`}
      </form>
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

// A list of what the service has: its filters, order, columns and the place in it are in the address.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link, setQuery } from "../router.js";
import { Empty, loaded, Page } from "./basics.js";
import { Filters } from "./filters.js";
import { plural } from "./text.js";

const PAGE = 100;

// The headings of a table, which lead to the orders of a list. `to`: the address of the list in an order.
/** @param {{ of: portal.Column[], order?: string | null, to?: (order: string) => string }} props */
export const Head = ({ of, order, to }) => html`
  <thead><tr>
    ${of.map((column) => html`
      <th class=${column.number && "number"} aria-sort=${order && column.order === order ? "other" : undefined}>
        ${to && column.order !== undefined ? html`<${Link} to=${to(column.order)}>${column.title}<//>` : column.title}${order && column.order === order && " ▾"}
      </th>`)}
  </tr></thead>
`;

/** @param {{ of: portal.Column[], hidden: string[] }} props */
const Columns = ({ of, hidden }) => html`
  <details>
    <summary>Columns</summary>
    ${of.slice(1).map(({ title }) => html`
      <label key=${title}><input type="checkbox" checked=${!hidden.includes(title)}
        onChange=${() => setQuery({ hide: (hidden.includes(title) ? hidden.filter((name) => name !== title) : [...hidden, title]).join(",") })} /> ${title}</label>`)}
  </details>
`;

// `path`: of what is listed. `cursor`: which parameter says where a page begins. `children`: a function that makes a
// table of a page of the list, its caption and its head.
/** @param {{ title: string, aside?: portal.Children, path: string, page: string, filters: portal.Filter[], columns: portal.Column[], cursor?: string, noun: string, empty?: portal.Children, children: (list: any, caption: string, head: portal.Children) => portal.Children } & portal.Query} props */
export function List({ title, aside, path, page, filters, columns, cursor = "after", query, noun, empty, children }) {
  const chosen = Object.fromEntries(filters.map(({ name }) => [name, query.get(name)]));
  const [hide, place] = [query.get("hide"), query.get(cursor)];
  const items = useResource(withQuery(path, { ...chosen, [cursor]: place, limit: PAGE }));
  const hidden = hide ? hide.split(",") : [];
  /** @param {Record<string, unknown>} changes */
  const to = (changes) => withQuery(page, { ...chosen, hide, ...changes });
  const head = html`<${Head} of=${columns} order=${chosen.order} to=${(/** @type {string} */ order) => to({ order })} />`;
  return html`
    <${Page} title=${title} aside=${aside}>
      <${Filters} of=${filters} page=${page} query=${query}><${Columns} of=${columns} hidden=${hidden} /><//>
      ${loaded(items, (data) => {
        const list = data.records ?? data;
        const next = items.next || data.next;
        return html`
          <div class=${columns.map((column, n) => (hidden.includes(column.title) ? `without-${n + 1}` : "")).join(" ")}>
            ${list.length
              ? children(list, next || place ? `${plural(list.length, noun)} on this page` : plural(list.length, noun), head)
              : html`<${Empty}>${Object.values(chosen).some(Boolean) || place ? `No ${noun} matches. Change the filters above.` : empty}<//>`}
          </div>
          <p class="pages">
            ${place && html`<${Link} to=${to({})}>First page<//>`}
            ${next && html`<${Link} to=${to({ [cursor]: next })} rel="next">Next page<//>`}
          </p>`;
      })}
    <//>
  `;
}

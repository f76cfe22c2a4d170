// The filters of a page, all of which are in its address: typed, chosen, or a day.
import { html } from "../html.js";
import { onTelephone } from "../hooks.js";
import { Link, setQuery } from "../router.js";
import { TextFilter } from "./text-filter.js";

/** @type {portal.Filter} */
export const LABEL = { name: "label", title: "Label", example: "tier=web" };

/** @param {{ of: portal.Filter } & portal.Query} props */
function Filter({ of, query }) {
  const value = query.get(of.name) ?? "";
  /** @param {portal.Input} event */
  const change = (event) => setQuery({ [of.name]: event.target.value.trim(), after: "", before: "", ...(of.clears && { [of.clears]: "" }) });
  if (of.day) return html`<label>${of.title} <input type="date" value=${value} onChange=${change} /></label>`;
  if (!of.choices) return html`<${TextFilter} title=${of.title} value=${value} example=${of.example} onChange=${change} />`;
  return html`
    <label>${of.title} <select value=${value} onChange=${change}>
      ${!("" in of.choices) && html`<option value="">any</option>`}${Object.entries(of.choices).map(([choice, words]) => html`<option value=${choice}>${words}</option>`)}
    </select></label>
  `;
}

// `page`: the address without any of them. On a telephone, they are folded while none is used.
/** @param {{ of: portal.Filter[], page: string, children?: portal.Children } & portal.Query} props */
export function Filters({ of, page, query, children }) {
  const used = of.some(({ name }) => query.get(name));
  const form = html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${of.map((filter) => html`<${Filter} key=${filter.name} of=${filter} query=${query} />`)}
      ${children}
      ${used && html`<${Link} to=${page}>Clear<//>`}
    </form>
  `;
  return onTelephone() ? html`<details class="numbers" open=${used}><summary>Filters</summary>${form}</details>` : form;
}

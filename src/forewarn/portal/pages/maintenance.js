// Maintenance configurations: when maintenance of machines with certain labels may start. Those of single groups are on
// their pages.
import { html } from "../html.js";
import { withQuery } from "../api.js";
import { useResource } from "../hooks.js";
import { Link } from "../router.js";
import { Empty, loaded, Page } from "../parts/basics.js";
import { plural } from "../parts/text.js";
import { Verbs } from "../parts/verbs.js";

export function Maintenance() {
  const configurations = useResource("/v1/maintenance");
  return html`
    <${Page} title="Windows" aside=${html`<${Verbs} kind="configurations" />`}>
      <p class="quiet">When maintenance may start, for machines of all groups. Single <${Link} to="/groups">groups<//> may have windows and blackouts of their own, and <${Link} to="/tonight">tonight<//> shows all that are open or closed.</p>
      ${loaded(configurations, (list) =>
        list.length
          ? html`
              <table class="rows stacked">
                <caption>${plural(list.length, "maintenance configuration")}</caption>
                <thead><tr><th>Name</th><th>Machines</th><th>Windows</th><th>Blackouts</th><th>Actions</th></tr></thead>
                <tbody>
                  ${list.map((of) => html`
                    <tr key=${of.name}>
                      <td>${of.name}</td>
                      <td data-label="Machines"><${Link} to=${withQuery("/machines", { label: of.select })}>${of.select || "all"}<//></td>
                      <td data-label="Windows">${of.windows.join("; ") || "at any time"}</td>
                      <td data-label="Blackouts">${of.blackouts.join("; ") || "none"}</td>
                      <td><${Verbs} kind="configuration" of=${of} /></td>
                    </tr>`)}
                </tbody>
              </table>
            `
          : html`<${Empty}>There is no maintenance configuration: only the windows and blackouts of single groups limit when maintenance may start. Add one here, or in the fleet file.<//>`)}
    <//>
  `;
}

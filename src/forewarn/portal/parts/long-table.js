// A table with thousands of rows of the same height, which is --row in style.css: only those near what is seen are there,
// unless it is printed. Who does not see it is told how many there are.
import { useRef } from "preact/hooks";
import { html } from "../html.js";
import { usePrinted, useSeenRows } from "../hooks.js";

// An empty row in the place of those that are not there.
/** @param {{ rows: number }} props */
const Space = ({ rows }) => {
  /** @param {HTMLElement | null} element */
  const height = (element) => element && (element.style.height = `calc(${rows} * var(--row))`);
  return rows > 0 && html`<tr aria-hidden="true"><td class="space" ref=${height}></td></tr>`;
};

// `head`: its cells. `row`: a function that makes the cells of one of `rows`, which have a key or a name of their own.
// `kind`: classes of the table.
/**
 * @template {{ name?: string, key?: string }} Row
 * @param {{ head: portal.Children, rows: Row[], row: (row: Row) => portal.Children, kind?: string }} props
 */
export function LongTable({ head, rows, row, kind = "" }) {
  const body = useRef(/** @type {any} */ (null));
  const seen = useSeenRows(body, rows.length);
  const [from, to] = usePrinted() ? [0, rows.length] : seen;
  return html`
    <div class="scroll"><table class=${`rows long ${kind}`} aria-rowcount=${rows.length + 1}>
      <thead><tr aria-rowindex="1">${head}</tr></thead>
      <tbody ref=${body}>
        <${Space} rows=${from} />
        ${rows.slice(from, to).map((one, n) => html`<tr key=${one.key ?? one.name} aria-rowindex=${from + n + 2}>${row(one)}</tr>`)}
        <${Space} rows=${rows.length - to} />
      </tbody>
    </table></div>
  `;
}

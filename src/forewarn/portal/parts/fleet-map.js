// The fleet as a picture: a row for each host or group, a column for each update domain, and in each cell bars in the
// colours of what happens to the machines there. One canvas, since thousands of elements would be slow; it is as high
// as what is seen and a little more, and moves along.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../html.js";
import { useSeenRows } from "../hooks.js";

/** @type {("held" | "started" | "scheduled" | "silent" | "quiet" | "gone")[]} */
export const STATES = ["held", "started", "scheduled", "silent", "quiet", "gone"];
const MEANINGS = {
  held: "an event could start, or go on, but something holds it",
  started: "an event is under way",
  scheduled: "an event is announced",
  silent: "it has not asked for its events in the last hour, or has never asked",
  quiet: "nothing is planned, and it asks for its events",
  gone: "evicted or deleted",
};
const ROW = 22;
// The widths of a name and of a cell, which is wider if there is room, and how many pixels of a screen are few.
const [NAME, CELL, WIDEST_CELL] = [180, 120, 280];
const [SMALL_NAME, SMALL_CELL, FEW] = [96, 72, 640];

/** @param {api.DomainCounts} domain */
export const total = (domain) => STATES.reduce((sum, state) => sum + (domain[state] ?? 0), 0);

/** @param {api.OverviewRow[]} rows */
export function columns(rows) {
  const found = /** @type {Set<number>} */ (new Set());
  for (const row of rows) for (const domain of row.domains ?? []) found.add(domain.update_domain);
  return [...found].sort((a, b) => a - b);
}

// The largest number of machines in a cell, which fills it.
/** @param {api.OverviewRow[]} rows */
const largest = (rows) => rows.reduce((most, row) => (row.domains ?? []).reduce((n, domain) => Math.max(n, total(domain)), most), 1);

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} columns
 */
function cellWidth(canvas, columns) {
  const frame = /** @type {HTMLElement} */ (canvas.closest(".fleet-map"));
  const { paddingLeft, paddingRight } = getComputedStyle(frame);
  const room = frame.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - NAME;
  return Math.min(WIDEST_CELL, Math.max(CELL, Math.floor(room / Math.max(1, columns))));
}

// Draw some of the rows. The heads of the columns are the first one.
/**
 * @param {HTMLCanvasElement} canvas
 * @param {api.OverviewRow[]} rows
 * @param {number[]} domains
 * @param {number} most
 * @param {number[]} seen
 */
function draw(canvas, rows, domains, most, [from, to]) {
  const scale = devicePixelRatio || 1;
  const few = innerWidth < FEW;
  const [name, cell] = few ? [SMALL_NAME, SMALL_CELL] : [NAME, cellWidth(canvas, domains.length)];
  const [width, height] = [name + domains.length * cell, (to - from) * ROW];
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.style.top = `${from * ROW}px`;
  const style = getComputedStyle(canvas);
  const colours = Object.fromEntries(STATES.map((state) => [state, style.getPropertyValue(`--${state}`)]));
  const [text, muted, font] = [style.color, style.getPropertyValue("--muted"), style.font];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(scale, scale);
  context.font = font;
  context.textBaseline = "middle";
  for (let n = from; n < to; n += 1) {
    const top = (n - from) * ROW;
    if (n === 0) {
      context.fillStyle = muted;
      domains.forEach((domain, column) => context.fillText(few ? `domain ${domain}` : `update domain ${domain}`, name + column * cell, ROW / 2));
      continue;
    }
    const row = rows[n - 1];
    const unwell = row.unreachable || (row.health && row.health !== "healthy");
    context.fillStyle = unwell ? colours.held : row.cordoned ? muted : text;
    context.fillText(row.name, 0, top + ROW / 2, name - 12);
    for (const domain of row.domains ?? []) {
      let left = name + domains.indexOf(domain.update_domain) * cell;
      for (const state of STATES) {
        const size = ((domain[state] ?? 0) / most) * (cell - 12);
        if (!size) continue;
        context.fillStyle = colours[state];
        context.fillRect(left, top + 4, Math.max(size, 2), ROW - 8);
        left += Math.max(size, 2);
      }
    }
  }
}

/** @param {{ rows: api.OverviewRow[], onPick: (name: string) => void }} props */
export function FleetMap({ rows, onPick }) {
  const picture = useRef(/** @type {any} */ (null));
  const canvas = useRef(/** @type {any} */ (null));
  const [from, to] = useSeenRows(picture, rows.length + 1, ROW);
  useEffect(() => {
    const [domains, most] = [columns(rows), largest(rows)];
    const paint = () => {
      if (!canvas.current) return; // the page has gone
      draw(canvas.current, rows, domains, most, [from, to]);
      picture.current.style.width = canvas.current.style.width;
    };
    if (!canvas.current) return undefined;
    paint();
    picture.current.style.height = `${(rows.length + 1) * ROW}px`;
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", paint);
    addEventListener("resize", paint);
    return () => {
      scheme.removeEventListener("change", paint);
      removeEventListener("resize", paint);
    };
  }, [rows, from, to]);
  /** @param {MouseEvent} event */
  const pick = (event) => {
    const row = rows[from + Math.floor(event.offsetY / ROW) - 1];
    if (row) onPick(row.name);
  };
  return html`
    <details class="numbers"><summary>What the colours mean</summary><${Meanings} /></details>
    <div class="fleet-map"><div ref=${picture}><canvas ref=${canvas} onClick=${pick} aria-hidden="true" /></div></div>
  `;
}

const Meanings = () => html`
  <ul class="meanings">
    ${STATES.map((state) => html`<li><span class=${`swatch ${state}`}></span><strong>${state}</strong>: ${MEANINGS[state]}.</li>`)}
    <li>The name of a host is red if it is degraded, has failed or is cut off, and grey if it is cordoned.</li>
  </ul>
`;

export const Legend = () => html`
  <ul class="legend">
    ${STATES.map((state) => html`<li title=${MEANINGS[state]}><span class=${`swatch ${state}`}></span>${state}</li>`)}
  </ul>
`;

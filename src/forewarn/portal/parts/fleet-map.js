// The fleet as a picture that fits one screen, however large it is: a block for each sum, and in it a square for each
// host or group in the colour of what is most notable about it, what is not quiet first.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { Link } from "../router.js";
import { grouped } from "./text.js";

/** @type {("held" | "started" | "scheduled" | "silent" | "quiet" | "gone")[]} */
export const STATES = ["held", "started", "scheduled", "silent", "quiet", "gone"];
/** @type {(keyof api.RowCounts)[]} */
export const ROW_STATES = ["unhealthy", "held", "started", "scheduled", "cordoned", "silent", "quiet"];
/** @type {Record<string, string>} */
export const MEANINGS = {
  unhealthy: "the host is degraded, has failed or is unreachable",
  held: "an event waits for an operator, since its outcome is not known",
  started: "an event is under way",
  scheduled: "an event is announced",
  cordoned: "the host is cordoned",
  silent: "it has not asked for its events in the last hour, or has never asked",
  quiet: "nothing is planned, and it asks for its events",
  gone: "evicted or deleted",
};
// Pixels: the largest square; the smallest, what is around a block and the height of its name, with names and without.
const [LARGEST, LETTER, LONGEST] = [22, 7, 10]; // and the width of a letter of a name, and how many it has at most
const NAMED = { smallest: 4, gap: 8, name: 18 };
const DENSE = { smallest: 1, gap: 3, name: 0 };
const [PART, LEAST] = [0.5, 240]; // of the height of the screen, and pixels at least

/** @param {Partial<api.MachineCounts>} of */
export const total = (of) => STATES.reduce((sum, state) => sum + (of[state] ?? 0), 0);

/** @param {api.RowCounts} of */
const size = (of) => ROW_STATES.reduce((sum, state) => sum + (of[state] ?? 0), 0);

/** @typedef {{ name: string, counts: api.RowCounts }} Block */

// The largest side of squares, in so many lines in each block, with which all blocks fit, if possible with their names.
/**
 * @param {Block[]} blocks
 * @param {number} width
 * @param {number} height
 */
function fitting(blocks, width, height) {
  for (const { smallest, gap, name } of [NAMED, DENSE]) {
    for (let side = LARGEST; side >= smallest; side -= 1) {
      for (let lines = 1; lines * side + name <= height; lines += 1) {
        let [x, y] = [0, lines * side + name];
        for (const block of blocks) {
          const wide = Math.max(Math.ceil(size(block.counts) / lines) * side, name && LETTER * Math.min(LONGEST, block.name.length));
          if (x && x + wide > width) [x, y] = [0, y + lines * side + name + gap];
          x += wide + gap;
          if (x > width + gap || y > height) break;
        }
        if (x <= width + gap && y <= height) return { side, lines, dense: !name };
      }
    }
  }
  return { side: DENSE.smallest, lines: 1, dense: true };
}

// The squares from one number to another, which fill column after column.
/**
 * @param {number} from
 * @param {number} to
 * @param {{ side: number, lines: number }} size
 */
function squares(from, to, { side, lines }) {
  let path = "";
  for (let n = from; n < to;) {
    const end = Math.min(to, n - (n % lines) + lines);
    path += `M${Math.floor(n / lines) * side} ${(n % lines) * side}h${side}v${(end - n) * side}h${-side}z`;
    n = end;
  }
  return path;
}

/** @param {{ of: Block, fit: { side: number, lines: number } }} props */
function Squares({ of: { counts }, fit }) {
  let [from, to] = [0, 0];
  const [width, height] = [Math.ceil(size(counts) / fit.lines) * fit.side, Math.min(fit.lines, size(counts)) * fit.side];
  return html`
    <svg width=${width} height=${height}>
      ${ROW_STATES.map((state) => {
        [from, to] = [to, to + (counts[state] ?? 0)];
        return to > from && html`<path class=${state} d=${squares(from, to, fit)} />`;
      })}
      ${fit.side > 2 && html`<rect width="100%" height="100%" fill="url(#squares)" />`}
    </svg>`;
}

/** @param {api.RowCounts} counts */
export const inWords = (counts) => ROW_STATES.filter((state) => counts[state]).map((state) => `${grouped(counts[state])} ${state}`).join(", ");

// `to`: the address of what is in a block. Who does not see it reads the table.
/** @param {{ blocks: Block[], to?: (name: string) => string }} props */
export function FleetMap({ blocks, to }) {
  const frame = useRef(/** @type {any} */ (null));
  const [[width, height], setSize] = useState([0, 0]);
  useEffect(() => {
    const measure = () => setSize([frame.current.clientWidth, Math.max(LEAST, innerHeight * PART)]);
    measure();
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const fit = width > 0 && fitting(blocks, width, height);
  return html`
    <div class="fleet-map" aria-hidden="true"><div ref=${frame} class=${fit && fit.dense ? "dense" : undefined}>
      ${fit && html`<svg width="0" height="0"><pattern id="squares" width=${fit.side} height=${fit.side} patternUnits="userSpaceOnUse"><path d=${`M0 ${fit.side - 0.5}h${fit.side}M${fit.side - 0.5} 0v${fit.side}`} /></pattern></svg>`}
      ${fit && blocks.map((block) => {
        const parts = html`${to && !fit.dense && html`<span>${block.name || "none"}</span>`}<${Squares} of=${block} fit=${fit} />`;
        return html`<figure key=${block.name} title=${`${block.name} ${inWords(block.counts)}`}>${to ? html`<${Link} to=${to(block.name)} tabindex="-1">${parts}<//>` : parts}</figure>`;
      })}
    </div></div>
  `;
}

export const Legend = () => html`
  <ul class="legend">
    ${STATES.map((state) => html`<li title=${MEANINGS[state]}><span class=${`swatch ${state}`}></span>${state}</li>`)}
  </ul>
`;

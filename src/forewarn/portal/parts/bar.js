// Numbers as one bar in the colours of their states. The numbers themselves are in the text beside it, or in its label.
import { html } from "../html.js";

/** @param {string} state */
export const kindOf = (state) => state.replaceAll(" ", "-");

/** @param {{ counts: portal.Counts, states: string[], most?: number }} props */
export function Bar({ counts, states, most }) {
  const shown = states.filter((state) => counts[state]);
  const whole = most ?? shown.reduce((sum, state) => sum + counts[state], 0);
  let left = 0;
  return html`
    <svg class="bar-of" role="img" aria-label=${shown.map((state) => `${counts[state]} ${state}`).join(", ") || "none"}>
      ${shown.map((state) => {
        const width = (100 * counts[state]) / Math.max(1, whole);
        left += width;
        return html`<rect class=${kindOf(state)} x=${`${left - width}%`} width=${`${width}%`} height="100%"><title>${counts[state]} ${state}</title></rect>`;
      })}
    </svg>
  `;
}

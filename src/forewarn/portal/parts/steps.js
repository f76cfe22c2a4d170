// The steps of a rollout as a picture: a line for each lane, a square for each step.
import { html } from "../html.js";
import { address, Link } from "../router.js";
import { Bar, kindOf } from "./bar.js";
import { EventLink, GroupLink, HostLink, MachineLink, Several } from "./links.js";
import { at, grouped } from "./text.js";

export const STEP_STATES = ["done", "nothing to do", "skipped", "started", "announced", "cancelled", "waiting"];
/** @type {Record<string, string>} */
const SIGNS = { done: "✓", "nothing to do": "–", skipped: "»", started: "▸", announced: "◷", cancelled: "×", waiting: "·" };

/** @type {Record<string, string>} */
const ACTIONS = { evacuation: "evacuation", work: "work" };
/** @param {api.Step} step */
const stepName = (step) => {
  const domain = step.update_domain === null ? "" : `domain ${step.update_domain}`;
  return [ACTIONS[step.action], domain].filter(Boolean).join(", ") || "the whole host";
};

/** @param {api.Step} step */
const stateOf = (step) => (step.failed ? `${step.state}, has failed` : step.state);

// The steps by wave and lane, in the order of the rollout: [[wave, [[lane, steps], …]], …].
/**
 * @param {api.Step[]} steps
 * @returns {[wave: number, lanes: [lane: string, steps: api.Step[]][]][]}
 */
function wavesOf(steps) {
  /** @type {Map<number, Map<string, api.Step[]>>} */
  const waves = new Map();
  for (const step of steps) {
    const lanes = waves.get(step.wave) ?? new Map();
    const ofLane = lanes.get(step.lane) ?? [];
    ofLane.push(step);
    waves.set(step.wave, lanes.set(step.lane, ofLane));
  }
  return [...waves].map(([wave, lanes]) => [wave, [...lanes]]);
}

/** @param {{ step: api.Step }} props */
const Square = ({ step }) => {
  const title = `${stepName(step)}: ${stateOf(step)}`;
  const kind = `step ${kindOf(step.state)}${step.failed ? " failed" : ""}`;
  const sign = step.failed ? "!" : SIGNS[step.state];
  if (!step.events.length) return html`<span class=${kind} role="img" title=${title} aria-label=${title}>${sign}</span>`;
  return html`<${Link} to=${address("events", step.events[0])} class=${kind} title=${title} aria-label=${title}>${sign}<//>`;
};

// How many steps are in each state, as a bar and as links to them. `to`: the address of those in one state.
/** @param {{ counts: portal.Counts, state: string, to: (state: string) => string }} props */
export const Sums = ({ counts, state, to }) => html`
  <${Bar} counts=${counts} states=${STEP_STATES} />
  <ul class="legend sums">
    ${STEP_STATES.map((name) => html`
      <li>
        <span class=${`step ${kindOf(name)}`} aria-hidden="true">${SIGNS[name]}</span>
        ${counts[name] ? html`<${Link} to=${to(state === name ? "" : name)} aria-current=${state === name ? "true" : undefined}>${grouped(counts[name])} ${name}<//>` : html`0 ${name}`}
      </li>`)}
    <li><span class="step failed" aria-hidden="true">!</span>has failed</li>
  </ul>
`;

// `to`: the address of the page about the lane of a step.
/** @param {{ steps: api.Step[], waves: number, to: (step: api.Step) => string }} props */
export const Lanes = ({ steps, waves, to }) =>
  wavesOf(steps).map(([wave, lanes]) => html`
    <section class="wave" key=${wave}>
      ${waves > 1 && html`<h2>Wave ${wave}</h2>`}
      <div class="lanes">
        ${lanes.map(([name, ofLane]) => html`
          <div class="lane" key=${name}>
            <${Link} to=${to(ofLane[0])}>${name}<//>
            <span class="squares">${ofLane.map((step) => html`<${Square} key=${step.number} step=${step} />`)}</span>
          </div>`)}
      </div>
    </section>`);

/** @param {{ steps: api.Step[] }} props */
export const StepTable = ({ steps }) => html`
  <table class="rows stacked">
    <thead>
      <tr><th>Step</th><th>Wave</th><th>Lane</th><th>What</th><th>State</th><th>Machines</th><th>Events</th><th>NotBefore</th><th>Started</th><th>Ended</th></tr>
    </thead>
    <tbody>
      ${steps.map(
        (step) => html`
          <tr key=${step.number}>
            <td data-label="Step">${step.number}</td>
            <td data-label="of wave">${step.wave}</td>
            <td>${step.host ? html`<${HostLink} name=${step.host} />` : html`<${GroupLink} name=${step.lane} />`}</td>
            <td>${stepName(step)}</td>
            <td>${stateOf(step)}</td>
            <td><${Several} of=${step.machines} as=${MachineLink} /></td>
            <td><${Several} of=${step.events} as=${EventLink} /></td>
            <td data-label="NotBefore">${step.not_before && html`<time>${at(step.not_before)}</time>`}</td>
            <td data-label="started">${step.started_at && html`<time>${at(step.started_at)}</time>`}</td>
            <td data-label="ended">${step.ended_at && html`<time>${at(step.ended_at)}</time>`}</td>
          </tr>
        `,
      )}
    </tbody>
  </table>
`;

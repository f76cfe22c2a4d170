// The life of an event: a table of its moments, each with a mark on a common line of time beside it.
import { html } from "../html.js";
import { useNow } from "../hooks.js";
import { Actor, MachineLink } from "./links.js";
import { at, duration } from "./text.js";

const EDGE = 5; // percent that is left free on both sides, so that marks are not cut off

// What NotBefore means for an event, depending on what has happened since.
/** @param {api.EventDetails} event */
function byItself(event) {
  const started = event.started_at && Date.parse(event.started_at) >= Date.parse(event.not_before);
  if (started) return "it started by itself";
  return event.started_at || event.ended_at ? "it would have started by itself" : "it starts by itself, if nothing holds it";
}

/**
 * @param {api.EventDetails} event
 * @param {Record<string, string>} seenBy
 */
function momentsOf(event, seenBy) {
  const seen = Object.entries(seenBy).sort(([, a], [, b]) => Date.parse(a) - Date.parse(b));
  /** @type {[name: string, instant: portal.Instant | false | undefined, note: portal.Children][]} */
  const moments = [
    ["Announced", event.raised_at, html`by <${Actor} name=${event.raised_by} />`],
    ["First seen", seen[0]?.[1] ?? null, html`by <${MachineLink} name=${seen[0]?.[0]} />`],
    ["Seen by all of its machines", event.machines.length > 1 && event.machines.every((name) => Object.hasOwn(seenBy, name)) && seen.filter(([name]) => event.machines.includes(name)).at(-1)?.[1], ""],
    ...event.postponed.map((step) => /** @type {[string, string, portal.Children]} */ (["Postponed", step.at, html`by ${step.by || "another group"}, to ${at(step.after)}`])),
    ["Approved", event.approved?.at ?? null, event.approved && html`by <${Actor} name=${event.approved.by} />`],
    ["NotBefore", event.not_before, byItself(event)],
    ["Started", event.started_at, ""],
    event.ended_at ? ["Ended", event.ended_at, event.ending] : ["Expected to end", event.expected_end, "at the latest"],
  ];
  return moments
    .flatMap(([name, instant, note]) => (instant ? [{ name, instant, note, time: Date.parse(instant) }] : []))
    .sort((a, b) => a.time - b.time);
}

/** @param {{ event: api.EventDetails, seenBy: Record<string, string> }} props */
export function Timeline({ event, seenBy }) {
  const now = useNow();
  const moments = momentsOf(event, seenBy);
  const current = event.ended_at ? null : now;
  const first = moments[0].time;
  const last = Math.max(...moments.map(({ time }) => time), current ?? 0);
  /** @param {number} time */
  const x = (time) => EDGE + ((100 - 2 * EDGE) * (time - first)) / Math.max(1, last - first);
  /**
   * @param {string} kind
   * @param {number} from
   * @param {number} to
   */
  const band = (kind, from, to) => to > from && html`<rect class=${kind} x=${`${x(from)}%`} width=${`${x(to) - x(from)}%`} y="35%" height="30%" />`;
  const [started, ended] = [event.started_at, event.ended_at].map((instant) => (instant ? Date.parse(instant) : null));
  const over = ended ?? Math.max(now, event.expected_end ? Date.parse(event.expected_end) : 0);
  return html`
    <table class="rows stacked timeline">
      <caption>Timeline${current !== null && html` <span class="aside">The dashed line is now.</span>`}</caption>
      <thead><tr><th>What</th><td aria-hidden="true"></td><th>When</th><th>After</th><th>By whom, or why</th></tr></thead>
      <tbody>
        ${moments.map(
          ({ name, instant, note, time }) => html`
            <tr key=${name + instant}>
              <th scope="row">${name}</th>
              <td class="strip" aria-hidden="true">
                <svg>
                  ${band("before", first, started ?? ended ?? Date.parse(event.not_before))}
                  ${started && band("during", started, over)}
                  ${current && html`<line class="now" x1=${`${x(current)}%`} x2=${`${x(current)}%`} y1="0" y2="100%" />`}
                  <circle class=${current !== null && time > current ? "ahead" : ""} cx=${`${x(time)}%`} cy="50%" r="5" />
                </svg>
              </td>
              <td><time datetime=${instant}>${at(instant)}</time></td>
              <td class="whole" data-label="after">${time > first && duration(time - first)}</td>
              <td>${note}</td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

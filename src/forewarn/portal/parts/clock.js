// The virtual clock: what time it is for the service, what is due next, and how to move on. A real clock has no panel.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { get, request } from "../api.js";
import { refresh } from "../live.js";
import { useSession } from "../session.js";
import { When } from "./basics.js";
import { at } from "./text.js";

const EVERY = 1_000; // milliseconds between two readings: others may move the clock, too
const SPEEDS = [1, 10, 60, 600];

// The clock, read again and again while it is virtual; whenever it has moved, the page is read again.
function useVirtualClock() {
  const [clock, setClock] = useState(/** @type {api.Clock | null} */ (null));
  const [problem, setProblem] = useState("");
  const before = useRef(/** @type {any} */ (null));
  /** @param {api.Clock} data */
  const note = (data) => {
    setClock(data);
    if (before.current !== null && before.current !== data.now) refresh();
    before.current = data.now;
  };
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout>} */
    let timer;
    let ended = false;
    async function read() {
      const { data } = /** @type {{ data?: api.Clock }} */ (document.hidden ? {} : await get("/v1/clock").catch(() => ({})));
      if (ended || (data && !data.virtual)) return;
      if (data) note(data);
      timer = setTimeout(read, EVERY);
    }
    read();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, []);
  /**
   * @param {string} verb
   * @param {object} [body]
   */
  const change = async (verb, body) => {
    try {
      note((await request("POST", `/v1/clock/${verb}`, { body })).data);
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  return { clock, change, problem };
}

export function Clock() {
  const { operations, limited } = useSession();
  const { clock, change, problem } = useVirtualClock();
  const [speed, setSpeed] = useState(60);
  const [busy, setBusy] = useState(false);
  if (!clock) return null;
  /**
   * @param {string} verb
   * @param {object} [body]
   */
  const move = (verb, body) => async () => {
    setBusy(true);
    await change(verb, body);
    setBusy(false);
  };
  const ahead = clock.next_due && clock.next_due > clock.now;
  return html`
    <section class="clock" aria-label="Virtual clock">
      <span class="quiet">Virtual clock</span>
      <time datetime=${clock.now}>${at(clock.now)}</time>
      <span class="quiet">${clock.next_due ? html`next due <${When} instant=${clock.next_due} />` : !limited && "nothing is due"}</span>
      ${operations.includes("advanceClock") && html`
        <span class="moves" role="group" aria-label="Advance">
          <button disabled=${busy} onClick=${move("advance", { by: 60 })}>+1 min</button>
          <button disabled=${busy} onClick=${move("advance", { by: 900 })}>+15 min</button>
          <button disabled=${busy || !ahead} onClick=${move("advance", { to: clock.next_due })}>To what is next</button>
        </span>
        <span class="moves">
          ${clock.running_speed > 0
            ? html`<button onClick=${move("pause")}>Pause</button> <span class="quiet">${clock.running_speed} times as fast as real time</span>`
            : html`
                <button onClick=${move("resume", { speed })}>Play</button>
                <select aria-label="Speed" value=${speed} onChange=${(event) => setSpeed(Number(event.target.value))}>
                  ${SPEEDS.map((factor) => html`<option value=${factor}>${factor}×</option>`)}
                </select>
              `}
        </span>
      `}
      ${problem && html`<span class="problem" role="alert">${problem}</span>`}
    </section>
  `;
}

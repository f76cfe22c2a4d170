// What this browser has done, and how it ended: a quiet line at the bottom of every page, kept in memory.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { serviceTime } from "../api.js";
import { Link } from "../router.js";
import { at } from "./text.js";

const MOST = 100; // tasks that are remembered
/** @typedef {{ id: string, title: string, link: string, at: string, state: "sent" | "done" | "refused" | "unknown", result: string }} Sent */

/** @type {Set<(tasks: Sent[]) => void>} */
const listeners = new Set();
/** @type {Sent[]} */
let tasks = []; // the latest first

/** @param {Sent[]} next */
function set(next) {
  tasks = next.slice(0, MOST);
  for (const listener of listeners) listener(tasks);
}

export const forgetTasks = () => set([]);

// Note that something was sent; the function that is returned notes how it ended: "done", "refused" or "unknown".
/**
 * @param {string} title
 * @param {string} link
 */
export function beginTask(title, link) {
  /** @type {Sent} */
  let task = { id: crypto.randomUUID(), title, link, at: new Date(serviceTime()).toISOString(), state: "sent", result: "" };
  set([task, ...tasks]);
  /**
   * @param {"done" | "refused" | "unknown"} state
   * @param {string} result
   */
  return (state, result, to = link) => {
    const ended = { ...task, state, result, link: to };
    set(tasks.map((other) => (other === task ? ended : other)));
    task = ended;
  };
}

const STATES = { sent: "sent, not answered yet", done: "done", refused: "refused", unknown: "not known" };

/** @param {{ of: Sent }} props */
const Task = ({ of }) => html`
  <${Link} to=${of.link}>${of.title}<//> <span class=${`outcome ${of.state}`}>${STATES[of.state]}</span>${of.result && `: ${of.result}`}
`;

export function Tasks() {
  const [shown, setShown] = useState(tasks);
  useEffect(() => {
    listeners.add(setShown);
    return () => listeners.delete(setShown);
  }, []);
  if (!shown.length) return null;
  const [last, ...earlier] = shown;
  return html`
    <footer class="tasks" aria-label="What you have done">
      <p role="status"><time datetime=${last.at}>${at(last.at).slice(11)}</time> <${Task} of=${last} /></p>
      ${earlier.length > 0 &&
      html`
        <details>
          <summary>${earlier.length} earlier</summary>
          <ol>
            ${earlier.map((task) => html`<li key=${task.id}><time datetime=${task.at}>${at(task.at).slice(11)}</time> <${Task} of=${task} /></li>`)}
          </ol>
        </details>
      `}
    </footer>
  `;
}

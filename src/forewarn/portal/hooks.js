// What components share: data that stays current, the service's clock, what of the page is seen.
import { useEffect, useReducer, useState } from "preact/hooks";
import { get, onClock, serviceTime } from "./api.js";
import { connection, onChange, onConnection } from "./live.js";

const SETTLE = 120; // milliseconds after a change before data is read again
const READS = 8; // a second, at most, of all data together while changes keep coming
const REST = 4; // times as long as a read took, until the next one
const AFTER_FAILURE = 5_000; // milliseconds until the next read if the service could not answer
const SECOND = 1_000; // milliseconds
const ROWS_AT_ONCE = 20; // that are added to those that are shown, or by which these move

// The answer to a GET request, which all components that show it share: read again whenever something has changed, one
// read at a time, and the less often the longer it takes.
/** @template Data */
class Resource {
  /** @type {portal.Read<Data>} */
  state = {};
  /** @type {Set<(state: portal.Read<Data>) => void>} */
  watchers = new Set();
  #commit = 0; // the answer is no older
  #wanted = 0; // the latest commit that we have been told of
  #stale = false; // whatever commit it is from
  /** @type {AbortController | null} */
  #abort = null;
  /** @type {ReturnType<typeof setTimeout> | null} */
  #timer = null;
  #next = 0; // when it may be read again

  /** @param {string} path */
  constructor(path) {
    this.path = path;
    this.stop = onChange((change) => this.#note(change));
    this.#read();
  }

  close() {
    this.stop();
    if (this.#timer) clearTimeout(this.#timer);
    this.#abort?.abort();
  }

  // Read it again although nothing has changed: some of what it says depends on the time.
  again() {
    this.#stale = true;
    this.#schedule();
  }

  /** @param {portal.Change | null} change */
  #note(change) {
    if (change?.progress && !this.path.includes(change.progress.event)) return;
    if (change?.seq) this.#wanted = change.seq;
    else this.#stale = true;
    this.#schedule();
  }

  #schedule() {
    const current = this.#commit >= this.#wanted && !this.#stale;
    if (current || this.#abort || this.#timer) return;
    this.#timer = setTimeout(() => this.#read(), Math.max(SETTLE, this.#next - performance.now()));
  }

  async #read() {
    this.#timer = null;
    this.#stale = false;
    this.#abort = new AbortController();
    const began = performance.now();
    let failed = false;
    try {
      const { data, commit, etag, next } = await get(this.path, { signal: this.#abort.signal });
      this.#commit = commit;
      this.#set({ path: this.path, data, etag, next });
    } catch (error) {
      if (error.name === "AbortError") return;
      this.#commit = this.#wanted;
      failed = error.status === 0 || error.status >= 500; // it may be answered the next time
      this.#set({ ...this.state, path: this.path, error });
    }
    const took = performance.now() - began;
    this.#next = began + (failed ? AFTER_FAILURE : Math.max(SECOND * Math.max(1, resources.size / READS), (1 + REST) * took));
    this.#stale ||= failed;
    this.#abort = null;
    this.#schedule();
  }

  /** @param {portal.Read<Data>} state */
  #set(state) {
    this.state = state;
    for (const watcher of this.watchers) watcher(state);
  }
}

/** @type {Map<string, Resource<any>>} */
const resources = new Map(); // by path: those that are shown

// The current answer to a GET request: { data, error }. `every`: milliseconds after which it is read again anyway.
/**
 * @template {string} Path
 * @param {Path} path
 * @param {number} [every]
 * @returns {portal.Read<portal.Answered<"GET", Path>>}
 */
export function useResource(path, every) {
  const [state, setState] = useState(/** @type {portal.Read<any>} */ ({}));
  useEffect(() => {
    const resource = resources.get(path) ?? new Resource(path);
    resources.set(path, resource);
    resource.watchers.add(setState);
    setState(resource.state);
    const timer = every ? setInterval(() => resource.again(), every) : undefined;
    return () => {
      clearInterval(timer);
      resource.watchers.delete(setState);
      if (resource.watchers.size) return;
      resources.delete(path);
      resource.close();
    };
  }, [path]);
  return state.path === path ? state : {};
}

/** @type {Set<(action: void) => void>} */
const clocks = new Set();
/** @type {ReturnType<typeof setInterval> | null} */
let ticking = null;

const tick = () => {
  for (const clock of clocks) clock();
};

// The service's time, which moves on every second, for all at once.
export function useNow() {
  const [, redraw] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => {
    clocks.add(redraw);
    ticking ??= setInterval(tick, SECOND);
    return () => {
      clocks.delete(redraw);
      if (clocks.size) return;
      if (ticking) clearInterval(ticking);
      ticking = null;
    };
  }, []);
  return serviceTime();
}

onClock(tick);

export function useConnection() {
  const [state, setState] = useState(connection());
  useEffect(() => onConnection(setState), []);
  return state;
}

// How many of many rows are shown: some more with every frame, so that the page is never busy for long.
/** @param {number} count */
export function useGradually(count) {
  const [shown, setShown] = useState(ROWS_AT_ONCE);
  useEffect(() => {
    if (shown >= count) return undefined;
    const frame = requestAnimationFrame(() => setShown(shown + ROWS_AT_ONCE));
    return () => cancelAnimationFrame(frame);
  }, [shown, count]);
  return Math.min(shown, count);
}

// Whether the screen is that of a telephone, on which what is rarely needed is folded.
export const onTelephone = () => matchMedia("(max-width: 640px)").matches;

// Whether the page is being printed.
export function usePrinted() {
  const [printed, setPrinted] = useState(() => matchMedia("print").matches);
  useEffect(() => {
    const paper = matchMedia("print");
    const look = () => setPrinted(paper.matches);
    paper.addEventListener("change", look);
    return () => paper.removeEventListener("change", look);
  }, []);
  return printed;
}

// Which of many rows of the same height, which is --row, are near what is seen of the element that they are in: [from, to].
/**
 * @param {{ current: HTMLElement | null }} element
 * @param {number} count
 */
export function useSeenRows(element, count) {
  const [seen, setSeen] = useState([0, 0]);
  useEffect(() => {
    const look = () => {
      if (!element.current) return;
      const above = -element.current.getBoundingClientRect().top;
      const height = parseFloat(getComputedStyle(element.current).getPropertyValue("--row"));
      /** @param {number} rows */
      const within = (rows) => Math.max(0, Math.min(count, ROWS_AT_ONCE * rows));
      const [from, to] = [Math.floor((above - innerHeight) / height / ROWS_AT_ONCE), Math.ceil((above + 2 * innerHeight) / height / ROWS_AT_ONCE)].map(within);
      setSeen((before) => (before[0] === from && before[1] === to ? before : [from, to]));
    };
    look();
    addEventListener("scroll", look, { passive: true });
    addEventListener("resize", look);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, [count]);
  return seen.map((row) => Math.min(row, count));
}

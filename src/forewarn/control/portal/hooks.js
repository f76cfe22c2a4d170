// What components share: data that stays current, the service's clock, the address of the page.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { get, onClock, serviceTime } from "./api.js";
import { connection, onChange, onConnection } from "./live.js";

const SETTLE = 120; // milliseconds after a change before data is read again
const AT_MOST_EVERY = 1_000; // milliseconds between two reads while changes keep coming

// The current answer to GET requests, read again whenever something changes: { data, error }.
export function useResource(path) {
  const [state, setState] = useState({});
  const loaded = useRef(0);
  useEffect(() => {
    let timer = null;
    let abort = null;
    let ended = false;
    setState((before) => (before.path === path ? before : { path }));
    async function load() {
      timer = null;
      abort = new AbortController();
      loaded.current = performance.now();
      try {
        const { data, etag, next } = await get(path, { signal: abort.signal });
        if (!ended) setState({ path, data, etag, next });
      } catch (error) {
        if (!ended && error.name !== "AbortError") setState((before) => ({ ...before, error }));
      }
      abort = null;
    }
    const schedule = () => {
      if (timer === null) {
        const since = performance.now() - loaded.current;
        timer = setTimeout(load, Math.max(SETTLE, AT_MOST_EVERY - since));
      }
    };
    load();
    const unsubscribe = onChange(schedule);
    return () => {
      ended = true;
      clearTimeout(timer);
      abort?.abort();
      unsubscribe();
    };
  }, [path]);
  return state.path === path ? state : {};
}

// The service's time, which moves on every second.
export function useNow() {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const timer = setInterval(redraw, 1_000);
    const unsubscribe = onClock(redraw);
    return () => {
      clearInterval(timer);
      unsubscribe();
    };
  }, []);
  return serviceTime();
}

export function useConnection() {
  const [state, setState] = useState(connection());
  useEffect(() => onConnection(setState), []);
  return state;
}

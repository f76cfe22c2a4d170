// The feed of changes: whoever listens is told that something has changed, and whether the connection is there.
//
// The browser connects again by itself and resumes after the last change that it was told (Last-Event-ID). If the
// service refuses that, because those changes are gone or the session has ended, we ask who we are and where the feed
// stands now, and tell everybody to look again. A page that nobody sees does not listen: browsers have few connections.
import { get } from "./api.js";

const RETRY = 2_000; // milliseconds after which a service that does not answer is asked again
const SILENCE = 30_000; // milliseconds without a message after which the service is asked whether it is there
const PATIENCE = 10_000; // milliseconds in which it then has to answer
/** @type {Set<(change: portal.Change | null) => void>} */
const listeners = new Set();
/** @type {Set<(state: string) => void>} */
const watchers = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {ReturnType<typeof setTimeout> | null} */
let timer = null; // of the next attempt, or of the next look at the silence
let attempt = 0; // the number of the latest; earlier ones that are answered late count no more
let last = 0; // the number of the latest commit that we were told of
let heard = 0; // when that was
let renewed = false; // since there was a message
let state = "connecting"; // live, lost
let onEnded = () => {};

/** @param {string} next */
function setState(next) {
  if (next === state) return;
  state = next;
  for (const watcher of watchers) watcher(state);
}

/** @param {portal.Change | null} change */
const tell = (change) => {
  for (const listener of listeners) listener(change);
};

function close() {
  attempt += 1;
  if (timer) clearTimeout(timer);
  source?.close();
  source = null;
}

// Follow the feed after a commit.
/** @param {number} after */
function open(after) {
  close();
  if (document.hidden) return;
  const stream = new EventSource(`/v1/feed?after=${after}`);
  source = stream;
  /** @param {MessageEvent} message */
  const hear = (message) => {
    last = Number(message.lastEventId);
    heard = performance.now();
    renewed = false;
  };
  stream.addEventListener("hello", (message) => {
    hear(message);
    if (state === "lost") tell(null); // what is not in the feed may have changed as well
    setState("live");
  });
  stream.addEventListener("change", (message) => {
    hear(message);
    tell(JSON.parse(message.data));
  });
  stream.addEventListener("progress", (message) => {
    heard = performance.now();
    tell({ progress: JSON.parse(message.data) });
  });
  stream.addEventListener("gone", () => renew());
  stream.onerror = () => {
    setState("lost");
    if (stream.readyState !== EventSource.CLOSED) return; // the browser tries again
    close();
    if (renewed) timer = setTimeout(() => renew(), RETRY);
    else renew();
  };
  heard = performance.now();
  timer = setTimeout(check, SILENCE);
}

// Connect again, after a commit or from where the feed stands now.
/** @param {number} [after] */
async function renew(after) {
  close();
  const current = attempt;
  try {
    const { data: session, commit } = await ask();
    if (current !== attempt) return;
    if (!session.name) {
      onEnded();
      return;
    }
    open(after ?? commit);
    renewed = true;
    tell(null);
  } catch {
    if (current !== attempt) return;
    setState("lost");
    timer = setTimeout(() => renew(after), RETRY);
  }
}

const ask = () => get("/v1/session", { patience: PATIENCE });

// A connection that was cut without a word looks like one on which nothing happens.
async function check() {
  const left = heard + SILENCE - performance.now();
  if (left > 0) {
    timer = setTimeout(check, left);
    return;
  }
  const current = attempt;
  const { data: session } = await ask().catch(() => /** @type {{ data?: api.Session }} */ ({}));
  if (current !== attempt) return;
  if (!session) {
    setState("lost");
    renew(last);
  } else if (!session.name) onEnded();
  else timer = setTimeout(check, SILENCE);
}

const look = () => {
  if (document.hidden) close();
  else renew();
};

// Follow the feed after a commit. `whenEnded` is called if the session has ended.
/**
 * @param {number} after
 * @param {() => void} whenEnded
 */
export function connect(after, whenEnded) {
  onEnded = whenEnded;
  document.addEventListener("visibilitychange", look);
  setState("connecting");
  open(after);
}

export function disconnect() {
  document.removeEventListener("visibilitychange", look);
  close();
}

// Have everybody look again, although the feed has told of no change.
export const refresh = () => tell({ changes: [] });

export const connection = () => state;

// Called with each change, with the progress of an event, or with null if there may have been changes.
/** @param {(change: portal.Change | null) => void} listener */
export const onChange = (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** @param {(state: string) => void} watcher */
export const onConnection = (watcher) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};

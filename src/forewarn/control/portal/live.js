// The feed of changes: whoever listens is told that something has changed, and whether the connection is there.
//
// The browser connects again by itself and resumes after the last change that it was told (Last-Event-ID). If the
// service answers that it may not, or that those changes are gone, we begin anew and tell everybody to look again.

const RETRY = 2_000; // milliseconds
const listeners = new Set();
const watchers = new Set();
let source = null;
let retry = null;
let state = "connecting"; // live, lost

function setState(next) {
  if (next === state) return;
  state = next;
  for (const watcher of watchers) watcher(state);
}

const tell = (change) => {
  for (const listener of listeners) listener(change);
};

function open() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource("/v1/feed");
  let resumed = state === "lost";
  source.addEventListener("hello", () => {
    setState("live");
    if (resumed) tell(null); // something may have been missed
    resumed = false;
  });
  source.addEventListener("change", (message) => tell(JSON.parse(message.data)));
  source.addEventListener("gone", reopen);
  source.onerror = () => {
    resumed = true;
    setState("lost");
    if (source.readyState === EventSource.CLOSED) reopen(); // it was refused: the browser gives up
  };
}

function reopen() {
  setState("lost");
  source?.close();
  clearTimeout(retry);
  retry = setTimeout(open, RETRY);
  tell(null);
}

export const connect = open;

export function disconnect() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

// Have everybody look again, although the feed has told of no change.
export const refresh = () => tell({ changes: [] });

export const connection = () => state;

// Called with each change, or with null if there may have been some.
export const onChange = (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const onConnection = (watcher) => {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
};

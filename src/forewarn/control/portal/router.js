// The address of the page says what it shows: /ui/events?status=Scheduled.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";

export const ROOT = "/ui";
const listeners = new Set();

// What is not percent-encoded correctly stays as it is: the page then says that there is no such thing.
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

function current() {
  const path = decoded(location.pathname.slice(ROOT.length)) || "/";
  return { path, query: new URLSearchParams(location.search), href: location.href };
}

const changed = () => {
  for (const listener of listeners) listener(current());
};

addEventListener("popstate", changed);

export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", ROOT + address);
  changed();
  if (!replace) scrollTo(0, 0);
}

export function useAddress() {
  const [address, setAddress] = useState(current);
  useEffect(() => {
    listeners.add(setAddress);
    setAddress((before) => (before.href === location.href ? before : current())); // it may have changed since it was read
    return () => listeners.delete(setAddress);
  }, []);
  return address;
}

// Change a part of the query, and leave the rest.
export function setQuery(changes) {
  const { query } = current();
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname.slice(ROOT.length) + (text ? `?${text}` : ""), { replace: true });
}

export const address = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;

export function Link({ to, children, ...rest }) {
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${ROOT + to} onClick=${follow} ...${rest}>${children}</a>`;
}

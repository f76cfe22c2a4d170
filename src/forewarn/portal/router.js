// The address of the page says what it shows: /ui/events?status=Scheduled.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";

export const ROOT = "/ui";
/** @type {Set<(address: ReturnType<typeof current>) => void>} */
const listeners = new Set();

// What is not percent-encoded correctly stays as it is: the page then says that there is no such thing.
/** @param {string} path */
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

/**
 * @param {string} address
 * @param {{ replace?: boolean }} [how]
 */
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
/** @param {Record<string, string>} changes */
export function setQuery(changes) {
  const { query } = current();
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname.slice(ROOT.length) + (text ? `?${text}` : ""), { replace: true });
}

/**
 * @template {string[]} Parts
 * @param {Parts} parts
 * @returns {portal.Joined<Parts>}
 */
export const address = (...parts) => /** @type {any} */ (`/${parts.map(encodeURIComponent).join("/")}`);

/** @param {{ to: string, children?: portal.Children, class?: string, title?: string, rel?: string }} props */
export function Link({ to, children, ...rest }) {
  /** @param {MouseEvent} event */
  const follow = (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${ROOT + to} onClick=${follow} ...${rest}>${children}</a>`;
}

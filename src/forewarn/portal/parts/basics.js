// Small pieces that every page uses.
import { useEffect } from "preact/hooks";
import { html } from "../html.js";
import { useNow } from "../hooks.js";
import { at, relative } from "./text.js";

// In which colours the health of a host is shown.
/** @type {Record<string, string>} */
export const HEALTH = { healthy: "quiet", degraded: "started", failed: "held" };

/** @param {{ title: string, children?: portal.Children, aside?: portal.Children }} props */
export function Page({ title, children, aside }) {
  useEffect(() => {
    document.title = `${title} – forewarn`;
  }, [title]);
  return html`
    <header class="page-head">
      <h1>${title}</h1>
      ${aside}
    </header>
    ${children}
  `;
}

// What a page shows while data is on its way, or cannot be had. `title`: of the page, if that comes with the data.
/**
 * @template Data
 * @param {portal.Read<Data>} of
 * @param {(data: Data) => portal.Children} show
 * @param {string} [title]
 */
export function loaded(of, show, title) {
  if (of.error && !of.data) {
    const problem = html`<p class="problem" role="alert">${of.error.message}</p>`;
    return title ? html`<${Page} title=${title}>${problem}<//>` : problem;
  }
  if (!of.data) return html`<p class="quiet" aria-busy="true">Loading…</p>`;
  return html`
    ${of.error && html`<p class="problem" role="alert">${of.error.message} What is shown may be out of date.</p>`}
    ${show(of.data)}
  `;
}

/** @param {{ children: portal.Children }} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** @param {{ kind: string, children: portal.Children }} props */
export const Badge = ({ kind, children }) => html`<span class=${`badge ${kind}`} title=${typeof children === "string" ? children : undefined}>${children}</span>`;

// A time, with what it is from now. Screen readers get the time itself, not every second.
/** @param {{ instant: portal.Instant }} props */
export function When({ instant }) {
  const now = useNow();
  if (!instant) return null;
  return html`<time datetime=${instant} title=${at(instant)} aria-label=${at(instant)}>${relative(instant, now)}</time>`;
}

/** @param {{ of: portal.Fact[] }} props */
export const Facts = ({ of }) => html`
  <dl class="facts">
    ${of
      .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
      .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>
`;

/** @param {{ of: Record<string, string> }} props */
export const Labels = ({ of }) =>
  Object.keys(of).length
    ? Object.entries(of).map(([name, value], n) => html`${n > 0 && ", "}<code>${value ? `${name}=${value}` : name}</code>`)
    : "none";

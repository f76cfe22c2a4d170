// Requests to the control API. A refusal becomes a Problem, whose message is the service's own sentence.

export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {any} [body]
   * @param {string} [leader]
   */
  constructor(status, message, body, leader) {
    super(message);
    this.status = status;
    this.body = body;
    this.leader = leader; // the address of the control node that decides, if this one does not
  }
}

const UNAUTHORIZED = 401;

let clock = { offset: 0, virtual: false, now: Date.now() };
/** @type {Set<() => void>} */
const clockListeners = new Set();
/** @type {Set<() => void>} */
const refusalListeners = new Set();

export const serviceTime = () => (clock.virtual ? clock.now : Date.now() + clock.offset);

/** @param {() => void} listener */
export const onClock = (listener) => {
  clockListeners.add(listener);
  return () => clockListeners.delete(listener);
};

// Called if the service no longer knows who asks.
/** @param {() => void} listener */
export const onUnauthorized = (listener) => {
  refusalListeners.add(listener);
  return () => refusalListeners.delete(listener);
};

/** @param {string | null} header */
function noteClock(header) {
  if (!header) return;
  const told = JSON.parse(header);
  const now = Date.parse(told.now);
  const moved = told.virtual && now !== clock.now; // a real one moves by itself
  clock = { virtual: told.virtual, now, offset: now - Date.now() };
  if (moved) for (const listener of clockListeners) listener();
}

// The cursor of the next page of a list; empty if there is none.
/** @param {string | null} link */
function cursor(link) {
  const address = /<([^>]*)>; rel="next"/.exec(link ?? "")?.[1];
  return address ? new URLSearchParams(address.split("?")[1]).get("after") : "";
}

// `patience`: milliseconds in which the service has to answer.
/**
 * @template {string} Method
 * @template {string} Path
 * @param {Method} method
 * @param {Path} path
 * @param {portal.Options} [options]
 * @returns {Promise<portal.Answer<portal.Answered<Method, Path>>>}
 */
export async function request(method, path, { body, token, etag, key, signal, patience } = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  if (etag) headers["If-Match"] = etag;
  if (key) headers["Idempotency-Key"] = key;
  const impatience = new AbortController();
  const timer = patience ? setTimeout(() => impatience.abort(), patience) : undefined;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      signal: signal ?? impatience.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The service cannot be reached.");
  } finally {
    clearTimeout(timer);
  }
  noteClock(response.headers.get("Forewarn-Clock"));
  const text = await response.text();
  const data = text && /json/.test(response.headers.get("Content-Type") ?? "") ? JSON.parse(text) : null;
  if (response.status === UNAUTHORIZED) for (const listener of refusalListeners) listener();
  if (!response.ok) throw new Problem(response.status, data?.detail ?? response.statusText, data, response.headers.get("Forewarn-Leader") ?? "");
  const commit = Number(response.headers.get("Forewarn-Commit")); // the answer is no older than this
  return { data, commit, etag: response.headers.get("ETag"), next: cursor(response.headers.get("Link")) };
}

// Parameters as a query; those without a value are left out.
/**
 * @template {string} Path
 * @param {Path} path
 * @param {Record<string, unknown>} parameters
 * @returns {Path} with a query, which changes nothing about the answer's type
 */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) query.set(name, String(value));
  return /** @type {Path} */ (query.size ? `${path}?${query}` : path);
}

/**
 * @template {string} Path
 * @param {Path} path
 * @param {portal.Options} [options]
 */
export const get = (path, options) => request("GET", path, options);

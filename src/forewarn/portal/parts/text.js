// Times and durations in words.

/** @type {[unit: string, seconds: number][]} */
const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

const LOCAL = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" }); // 2026-11-19 09:00:00
const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
const NUMBER = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric", month: "short" });

// A time in the reader's zone, and beside it in UTC, if that is another one.
/** @param {Date} date @param {string} local @param {number} length of the time of day */
function beside(date, local, length) {
  const [day, time] = date.toISOString().split("T");
  if (!date.getTimezoneOffset()) return `${local} UTC`;
  const zone = ZONE.formatToParts(date).find(({ type }) => type === "timeZoneName")?.value;
  return `${local} ${zone} (${LOCAL.format(date).startsWith(day) ? "" : `${day} `}${time.slice(0, length)} UTC)`;
}

const MOST = 5_000; // texts that are kept

// A function of an instant that keeps what it has returned: formatting is what takes longest in a table of times.
/** @param {(date: Date) => string} format */
function kept(format) {
  /** @type {Map<string, string>} */
  const texts = new Map();
  return (/** @type {portal.Instant} */ instant) => {
    if (!instant) return "";
    if (texts.size > MOST) texts.clear();
    const text = texts.get(instant) ?? format(new Date(instant));
    texts.set(instant, text);
    return text;
  };
}

export const at = kept((date) => beside(date, LOCAL.format(date), 8));

// The same without the year and seconds: Thu, Nov 19 09:00 GMT+1 (08:00 UTC).
export const shortly = kept((date) => beside(date, `${DAY.format(date)} ${LOCAL.format(date).slice(11, 16)}`, 5));

// 12345 → "12,345"; nothing of what is not known.
/** @param {number | null} [number] */
export const grouped = (number) => (number === null || number === undefined ? "" : NUMBER.format(number));

// A sentence of the service, in which times are in UTC, with these as above.
/** @param {string} text */
export const inZone = (text) => text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\dZ)/g, (time, day, clock) => (Date.parse(`${day}T${clock}`) ? at(`${day}T${clock}`) : time));

// 754_000 → "12 min 34 s"; the two largest units, as people say it.
/** @param {number} milliseconds */
export function duration(milliseconds) {
  let left = Math.max(0, Math.round(milliseconds / 1_000));
  /** @type {string[]} */
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    if (count) parts.push(`${count} ${unit}`);
    left -= count * size;
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

/**
 * @param {string} instant
 * @param {number} now
 */
export function relative(instant, now) {
  const difference = Date.parse(instant) - now;
  if (Math.abs(difference) < 1_000) return "now";
  return difference >= 0 ? `in ${duration(difference)}` : `${duration(-difference)} ago`;
}

// The order in which people list names: web_2 before web_10.
/** @param {string} a @param {string} b */
export const naturally = (a, b) => a.localeCompare(b, "en", { numeric: true });

/**
 * @param {number} count
 * @param {string} one
 */
export const plural = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

// `count`: of all, if these are only the first.
/** @param {string[]} names */
export function listed(names, most = 3, count = names.length) {
  if (count <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${grouped(count - most)} more`;
}

// "1h30m" or "90 s" → seconds; null if it is no duration.
/** @param {string} text */
export function seconds(text) {
  const compact = text.replaceAll(" ", "");
  if (!/^(\d+(\.\d+)?(d|h|min|m|s))+$/.test(compact)) return null;
  /** @type {Record<string, number>} */
  const sizes = { d: 86_400, h: 3_600, min: 60, m: 60, s: 1 };
  return [...compact.matchAll(/([\d.]+)(d|h|min|m|s)/g)].reduce((sum, [, count, unit]) => sum + Number(count) * sizes[unit], 0);
}

// 5400 → "1h30m", as one writes it.
/** @param {number} count */
export function compact(count) {
  let left = count;
  return UNITS
    .map(([unit, size]) => {
      const units = Math.floor(left / size);
      left -= units * size;
      return units ? `${units}${unit.slice(0, 1)}` : "";
    })
    .join("");
}

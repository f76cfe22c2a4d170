// Times and durations in words.

/** @type {[unit: string, seconds: number][]} */
const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];

/** @param {portal.Instant} instant */
export const at = (instant) => (instant ? `${new Date(instant).toISOString().slice(0, 19).replace("T", " ")} UTC` : "");

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

/**
 * @param {number} count
 * @param {string} one
 */
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** @param {string[]} names */
export function listed(names, most = 3) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
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

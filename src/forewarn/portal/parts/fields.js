// The fields of a form, and what they say as the body and the query of a request.
import { html } from "../html.js";
import { seconds } from "./text.js";

const NOT_A_DURATION = "Write it like 30m, 1h30m or 7d.";

/** @param {portal.Input} event */
const check = (event) => {
  const { value } = event.target;
  event.target.setCustomValidity(value.trim() && seconds(value) === null ? NOT_A_DURATION : "");
};

// A field: { name, label, type, help, required, choices, value, byDefault, cleared, means, query, inPath, section, within, key }.
// Types: text, duration, instant, number, check, choice, list and numbers (separated by commas, or by another separator).
// One that says what an empty value means (`cleared`) is about something that exists, and is left out if it is not changed.
/** @param {{ of: portal.Field }} props */
export function Field({ of }) {
  const help = of.help && `help-${of.name}`;
  return html`
    <div class="field">
      <label class=${of.type === "check" ? "check" : ""}><${Input} of=${of} help=${help} /></label>
      ${help && html`<small id=${help}>${of.help}</small>`}
    </div>
  `;
}

/** @type {Record<string, string>} */
const INPUT_TYPES = { number: "number", instant: "datetime-local" };

/** @param {{ of: portal.Field, help?: string }} props */
function Input({ of, help }) {
  const { name, label, type = "text", required, choices, value } = of;
  const common = { name, "aria-describedby": help || undefined };
  if (type === "check") return html`<input type="checkbox" ...${common} defaultChecked=${Boolean(value)} /> ${label}`;
  if (type === "choice") return html`${label} <select ...${common}>${choices?.map((choice) => html`<option>${choice}</option>`)}</select>`;
  const list = choices && `choices-${name}`;
  return html`
    ${label}${required && html` <span class="quiet">(required)</span>`}
    <input ...${common} required=${required} defaultValue=${value} autocomplete="off" list=${list}
      type=${INPUT_TYPES[type] ?? "text"} min=${type === "number" ? of.min ?? 0 : undefined}
      onInput=${type === "duration" ? check : undefined} placeholder=${type === "duration" ? "30m" : undefined} />
    ${choices && html`<datalist id=${list}>${choices.map((choice) => html`<option value=${choice} />`)}</datalist>`}
  `;
}

/**
 * @param {HTMLInputElement} input
 * @param {portal.Field} field
 */
const parts = (input, { separator = "," }) => {
  const found = input.value.split(separator).map((part) => part.trim()).filter(Boolean);
  return found.length ? found : undefined;
};

/** @type {Record<string, (input: HTMLInputElement, field: portal.Field) => unknown>} */
const READ = {
  text: (input) => input.value.trim() || undefined,
  choice: (input, { byDefault }) => (input.value === byDefault ? undefined : input.value),
  check: (input, { means = true }) => (input.checked ? means : undefined),
  number: (input) => (input.value === "" ? undefined : Number(input.value)),
  duration: (input) => (input.value.trim() ? seconds(input.value) : undefined),
  instant: (input) => (input.value ? new Date(`${input.value}Z`).toISOString() : undefined),
  list: parts,
  numbers: (input, field) => parts(input, field)?.map(Number),
};

/** @param {HTMLInputElement} input */
const changed = (input) => (input.type === "checkbox" ? input.checked !== input.defaultChecked : input.value !== input.defaultValue);

/**
 * @param {HTMLInputElement} input
 * @param {portal.Field} field
 */
function valueOf(input, field) {
  const value = READ[field.type ?? "text"](input, field);
  if (field.cleared === undefined) return value;
  return changed(input) ? value ?? field.cleared : undefined;
}

// Fields that are left empty are left out, and without fields for the body there is none. A field `within` another one is
// its `key` there.
/**
 * @param {HTMLFormElement} form
 * @param {portal.Field[]} fields
 */
export function valuesOf(form, fields) {
  const query = new URLSearchParams();
  /** @type {Record<string, string>} */
  const path = {};
  /** @type {Record<string, any>} */
  const body = {};
  const sent = fields.some((field) => !field.query && !field.inPath);
  for (const field of fields) {
    const value = valueOf(/** @type {HTMLInputElement} */ (form.elements.namedItem(field.name)), field);
    if (value === undefined) continue;
    if (field.query) query.set(field.name, String(value));
    else if (field.inPath) path[field.name] = String(value);
    else if (field.within && field.key) (body[field.within] ??= {})[field.key] = value;
    else body[field.name] = value;
  }
  return { body: sent ? body : undefined, path, query: query.size ? `?${query}` : "" };
}

// A filter that is typed. What has been typed stays while the rest of the page changes.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";

/** @param {{ title: string, value: string, example?: string, onChange: (event: portal.Input) => void }} props */
export function TextFilter({ title, value, example, onChange }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return html`
    <label>${title} <input value=${typed} placeholder=${example}
      onInput=${(event) => setTyped(event.target.value)} onChange=${onChange} /></label>
  `;
}

// The halt of everything, within reach on every page, and what is halted now.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { at, plural } from "./text.js";
import { Verbs } from "./verbs.js";

/** @param {api.Halt} halt */
const wholeFleet = (halt) => !halt.groups.length && !halt.label && !halt.host_label;

export function HaltAll() {
  const halts = useResource("/v1/halts");
  return (halts.data ?? []).some(wholeFleet) ? null : html`<${Verbs} kind="fleet" />`;
}

export function Halts() {
  const halts = useResource("/v1/halts");
  return (halts.data ?? []).map(
    (halt) => html`
      <section key=${halt.id} class="halt">
        <p><strong role="alert">Halted: ${halt.scope}</strong>, since ${at(halt.at)} by ${halt.by}${halt.note && `: ${halt.note}`}. ${plural(halt.events, "event waits", "events wait")} for it.</p>
        <${Verbs} kind="halt" of=${halt} />
      </section>
    `,
  );
}

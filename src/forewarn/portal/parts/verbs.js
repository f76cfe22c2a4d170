// Buttons for what the caller may do to something in its present state. Each verb is declared once, in verbs/: for which
// states it is offered, what it causes, and what it asks. The service decides whether it happens.
//
// A kind: path of the API (its ETag is sent along, unless it is no resource of its own), page, name, state in words,
// more that is read for the confirmation (also by a verb), and whom it concerns. A verb that is typed asks for the name; one with sure
// has to be ticked; one with a path of its own is not about the state of the resource.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { useSession } from "../session.js";
import { event } from "../verbs/events.js";
import { group } from "../verbs/groups.js";
import { fleet, halt, part } from "../verbs/halts.js";
import { host } from "../verbs/hosts.js";
import { machine } from "../verbs/machines.js";
import { configuration, configurations } from "../verbs/maintenance.js";
import { rollout, rollouts } from "../verbs/rollouts.js";
import { Dialog, possible } from "./dialog.js";

/** @type {Record<string, portal.Kind<any>>} */
const KINDS = { configuration, configurations, event, fleet, group, halt, host, machine, part, rollout, rollouts };

// `more`: what the service has said about it, as far as that decides what is offered.
/** @param {{ kind: string, of?: object, more?: object }} props */
export function Verbs({ kind: name, of = {}, more = {} }) {
  const session = useSession();
  const kind = KINDS[name];
  const [asked, setAsked] = useState(/** @type {portal.Verb<any> | null} */ (null));
  const group = useRef(/** @type {any} */ (null));
  const button = useRef(/** @type {any} */ (null)); // the one that was used last
  useEffect(() => {
    if (!button.current || button.current.isConnected) return;
    if (document.activeElement === document.body) group.current.focus({ preventScroll: true });
  });
  const offered = kind.verbs.filter((verb) => session.operations.includes(verb.operation) && possible(verb, of, more, session));
  if (!offered.length && !button.current) return null;
  /** @param {portal.Verb<any>} verb */
  const ask = (verb) => (/** @type {portal.Input} */ event) => {
    button.current = event.currentTarget;
    setAsked(verb);
  };
  return html`
    <div class="verbs" role="group" aria-label="Actions" tabindex="-1" ref=${group}>
      ${offered.map((verb) => html`<button key=${verb.label} class=${verb.typed || verb.sure ? "danger" : ""} onClick=${ask(verb)}>${verb.label}…</button>`)}
    </div>
    ${asked && html`<${Dialog} kind=${kind} verb=${asked} of=${of} onClose=${() => setAsked(null)} />`}
  `;
}

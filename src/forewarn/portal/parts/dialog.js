// The confirmation of a verb: whom it concerns, what it causes, and what the service answers.
//
// It reads the resource when it opens, and is about the state that it shows: the request carries that state's ETag.
// Its Idempotency-Key stays the same for as long as the answer is not known, so that sending it again is safe.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { get, Problem, request } from "../api.js";
import { address } from "../router.js";
import { useSession } from "../session.js";
import { nameOf } from "./event-table.js";
import { Elsewhere } from "./elsewhere.js";
import { Field, valuesOf } from "./fields.js";
import { beginTask } from "./tasks.js";
import { plural } from "./text.js";

const CHANGED = "It has changed in the meantime, and nothing was done. This is how it is now:";
const TOO_LATE = "In this state, it is no longer possible.";
const STALE = 412; // the resource does not have the ETag that was sent
const LOST = "It is not known whether this was done. You can send it again: it is done at most once.";

/** @param {portal.Failure} error */
const kindOf = (error) => /problem-(.*)$/.exec(error.body?.type ?? "")?.[1] ?? "";
/** @param {portal.Failure} error */
const isUnknown = (error) => error.status === 0 || kindOf(error) === "under-way" || (Number(error.status) >= 500 && kindOf(error) !== "not-leading");

/** @type {Record<string, string>} */
const NOUNS = { machines: "machine", groups: "group", hosts: "host", events: "event" };

// Machines, groups, hosts and events: either names, or only how many.
/** @param {{ of: portal.Concerned }} props */
function Concerned({ of }) {
  const rows = Object.entries(of).filter(([, names]) => (Array.isArray(names) ? names.length : names));
  if (!rows.length) return null;
  return html`
    <dl class="concerned">
      ${rows.map(
        ([kind, names]) => html`
          <div>
            <dt>${plural(Array.isArray(names) ? names.length : names, NOUNS[kind])}</dt>
            ${Array.isArray(names) && html`<dd>${names.join(", ")}</dd>`}
          </div>
        `,
      )}
    </dl>
  `;
}

// The box in the form that does what the service suggests.
/**
 * @param {api.ProblemHint | null | undefined} hint
 * @param {portal.Field[]} fields
 */
const suggestedBox = (hint, fields) => fields.find((field) => field.type === "check" && field.name === hint?.kind.replaceAll("-", "_"));

// The fields in the order of their sections; those without one come first.
/**
 * @param {portal.Field[]} fields
 * @returns {[section: string, fields: portal.Field[]][]}
 */
function sectionsOf(fields) {
  /** @type {Map<string, portal.Field[]>} */
  const sections = new Map([["", []]]);
  for (const field of fields) {
    const section = field.section ?? "";
    sections.set(section, [...(sections.get(section) ?? []), field]);
  }
  return [...sections];
}

/** @param {portal.Kind<any>} kind @param {any} of */
const pathOf = (kind, of) => kind.path?.(of) ?? "";

/** @param {portal.Kind<any>} kind @param {any} of */
const nameIn = (kind, of) => kind.name?.(of) ?? "";

// Whether something can be done in the state that is shown, as far as is known. The service has the last word.
/**
 * @param {portal.Verb<any>} verb
 * @param {any} resource
 * @param {any} more
 * @param {api.Session} session
 */
export function possible(verb, resource, more, session) {
  if (more.operations && !more.operations.includes(verb.operation)) return false;
  return !verb.offered || Boolean(verb.offered(resource, more, session));
}

// A refusal in the service's own words, and what it suggests.
/** @param {{ of: portal.Failure, box?: portal.Field }} props */
const Refusal = ({ of, box }) => html`
  <div class="problem" role="alert" ref=${(/** @type {Element | null} */ element) => element?.scrollIntoView({ block: "nearest" })}>
    <p>${of.message}</p>
    ${(of.body?.errors ?? []).length > 1 && html`<ul>${of.body.errors.map((/** @type {api.Mistake} */ mistake) => html`<li><code>${mistake.pointer}</code> ${mistake.detail}</li>`)}</ul>`}
    ${of.body?.did_you_mean && !of.message.includes(of.body.did_you_mean) && html`<p>Did you mean ${of.body.did_you_mean}?</p>`}
    <${Elsewhere} leader=${of.leader} />
    ${of.body?.hint && html`<p>${box ? `Tick “${box.label}” to override.` : of.body.hint.detail}</p>`}
    ${isUnknown(of) && html`<p>${LOST}</p>`}
  </div>
`;

// How a verb ended, in words, and the page that shows it.
/**
 * @param {any} answer of any operation
 * @returns {{ text: string, page?: string }}
 */
function outcome(answer) {
  if (answer?.status) return { text: `${nameOf(answer)} is ${answer.status}`, page: address("events", answer.id) };
  if (answer?.state) return { text: `it is ${answer.state}`, page: address("rollouts", answer.id) };
  if (answer?.events?.length && !answer.name) {
    const [first, ...others] = answer.events;
    const statuses = [...new Set(answer.events.map((/** @type {api.Event} */ event) => event.status))].join(", ");
    if (!others.length) return outcome(first);
    return { text: `${plural(answer.events.length, "event")}, ${statuses}` };
  }
  return { text: "" };
}

/** @param {{ kind: portal.Kind<any>, verb: portal.Verb<any>, of: any, onClose: () => void }} props */
export function Dialog({ kind, verb, of, onClose }) {
  const session = useSession();
  const dialog = useRef(/** @type {any} */ (null));
  const back = useRef(/** @type {any} */ (null));
  const form = useRef(/** @type {any} */ (null));
  const key = useRef("");
  const [shown, setShown] = useState(/** @type {any} */ (null)); // { resource, etag, more }
  const [problem, setProblem] = useState(/** @type {portal.Failure | null} */ (null));
  const [changed, setChanged] = useState(false);
  const [plan, setPlan] = useState(/** @type {any} */ (null)); // what the service would do
  const [notes, setNotes] = useState(/** @type {string[] | null} */ (null)); // what the service says about what it has done
  const [sending, setSending] = useState(false);
  const [entered, setEntered] = useState({ typed: "", sure: false });

  const read = async () => {
    const { data, etag } = kind.resource === false ? { data: of } : await get(pathOf(kind, of));
    const more = Object.assign({}, ...(await Promise.all([kind.more?.(data, of), verb.more?.(data, of)])));
    key.current = crypto.randomUUID();
    setShown({ resource: data, etag, more });
    return etag;
  };
  useEffect(() => {
    dialog.current.showModal();
    back.current.focus();
    read().catch(setProblem);
  }, []);

  const close = () => dialog.current?.close();
  const resource = shown?.resource ?? of;
  const title = verb.title?.(resource) ?? `${verb.label} ${nameIn(kind, resource)}`;
  const name = verb.typed && shown && nameIn(kind, resource);
  const allowed = !shown || possible(verb, resource, shown.more, session);
  const permitted = shown && allowed && (!verb.typed || entered.typed === name) && (!verb.sure || entered.sure);
  const fields = (shown && verb.fields?.(resource, shown.more, session)) || [];
  const unknown = problem && isUnknown(problem);
  const box = suggestedBox(problem?.body?.hint, fields);

  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    if (!permitted || sending) return;
    const { body: entries, path: named, query } = valuesOf(form.current, fields);
    const body = verb.body ? { ...verb.body(resource, session), ...entries } : entries;
    const path = verb.path?.(resource, named) ?? [pathOf(kind, resource), verb.action].filter(Boolean).join("/");
    setProblem(null);
    setChanged(false);
    if (verb.needs && !verb.needs.oneOf.some((name) => body?.[name])) {
      setProblem(new Problem(400, verb.needs.message));
      return;
    }
    setSending(true);
    try {
      if (verb.plan && !plan) {
        const { data } = await request("POST", verb.plan.path, { body: { ...body, ...verb.plan.body } });
        setPlan(data);
        back.current?.focus();
      } else {
        await send(path + query, body);
      }
    } catch (error) {
      if (error.status !== STALE) setProblem(error);
      if (!isUnknown(error)) setChanged((await read().catch(() => shown.etag)) !== shown.etag || error.status === STALE);
    }
    setSending(false);
  };

  /**
   * @param {string} path
   * @param {unknown} body
   */
  const send = async (path, body) => {
    const end = beginTask(title, kind.page(resource));
    try {
      const [etag, keyed] = [verb.path ? undefined : shown.etag, verb.keyed !== false];
      const { data } = await request(verb.method ?? "POST", path, { body, etag, key: keyed ? key.current : undefined });
      const { text, page } = outcome(data);
      end("done", text, page);
      if (data?.notes?.length) setNotes(data.notes);
      else close();
    } catch (error) {
      end(isUnknown(error) ? "unknown" : "refused", error.status === STALE ? "it had changed" : error.message);
      throw error;
    }
  };

  if (notes) {
    return html`
      <dialog ref=${dialog} onClose=${onClose} aria-labelledby="dialog-title">
        <h2 id="dialog-title">${title}: done</h2>
        <ul role="status">${notes.map((note) => html`<li>${note}</li>`)}</ul>
        <div class="buttons"><button type="button" onClick=${close} ref=${(/** @type {HTMLElement | null} */ button) => button?.focus()}>Close</button></div>
      </dialog>
    `;
  }
  const label = verb.plan && !plan ? verb.plan.label : unknown ? "Send again" : (verb.confirm ?? verb.label);
  const [[, usual], ...folded] = sectionsOf(fields);
  /** @param {portal.Input} event */
  const unfold = (event) => event.target.closest("details")?.setAttribute("open", ""); // or nobody sees what is wrong
  /** @param {portal.Input} event */
  const onClick = (event) => event.detail > 1 && event.preventDefault(); // a double click confirms nothing
  return html`
    <dialog ref=${dialog} onClose=${onClose} aria-labelledby="dialog-title">
      <form ref=${form} onSubmit=${submit} onInvalidCapture=${unfold}>
        <h2 id="dialog-title">${title}</h2>
        ${changed && html`<p class="problem" role="alert">${CHANGED}</p>`}
        ${shown && kind.state && !verb.path && html`<p class="now">${kind.state(resource)}</p>`}
        ${shown
          ? html`
              <p>${allowed ? verb.effect(resource, shown.more, session) : TOO_LATE}</p>
              <${Concerned} of=${(verb.concerned ?? kind.concerned)?.(resource, shown.more) ?? {}} />
              <fieldset disabled=${unknown} hidden=${plan}>
                ${usual.map((field) => html`<${Field} key=${field.name} of=${field} />`)}
                ${folded.map(
                  ([section, ofSection]) => html`
                    <details key=${section} open=${(box && ofSection.includes(box)) || undefined}>
                      <summary>${section}</summary>
                      <div class="fields">${ofSection.map((field) => html`<${Field} key=${field.name} of=${field} />`)}</div>
                    </details>
                  `,
                )}
                ${verb.typed &&
                html`<label>Type <strong>${name}</strong> to confirm
                  <input autocomplete="off" value=${entered.typed} onInput=${(event) => setEntered({ ...entered, typed: event.target.value })} /></label>`}
                ${verb.sure &&
                html`<label class="check"><input type="checkbox" checked=${entered.sure} onChange=${(event) => setEntered({ ...entered, sure: event.target.checked })} />
                  ${" "}${verb.sure(resource)}</label>`}
              </fieldset>
              ${plan && verb.plan?.view(plan)}
            `
          : !problem && html`<p class="quiet" aria-busy="true">Loading…</p>`}
        ${problem && html`<${Refusal} of=${problem} box=${box} />`}
        <div class="buttons">
          ${plan && !unknown && html`<button type="button" onClick=${() => setPlan(null)}>Change</button>`}
          <button type="button" onClick=${close} ref=${back}>Back</button>
          <button class=${verb.typed || verb.sure ? "danger" : "confirm"} disabled=${!permitted || plan?.problem} aria-busy=${sending} onClick=${onClick}>${label}</button>
        </div>
      </form>
    </dialog>
  `;
}

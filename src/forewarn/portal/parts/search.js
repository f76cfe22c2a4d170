// The search: what the service finds while one types, to be chosen with the arrow keys or the mouse.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { get, withQuery } from "../api.js";
import { address, go } from "../router.js";
import { listed } from "./text.js";

const SETTLE = 150; // milliseconds without a key before the service is asked

/** @param {api.Hit} hit */
const about = ({ type, machines = [], group }) => [type, machines.length ? `of ${listed(machines)}` : "", group && !machines.length ? `in ${group}` : ""].filter(Boolean).join(" ");
/** @param {api.Hit} hit */
const pageOf = (hit) => address(`${hit.kind}s`, hit.name);

// What the service finds for a text: null until it has answered.
/** @param {string} text */
function useHits(text) {
  const [found, setFound] = useState(/** @type {{ text?: string, hits?: api.Hit[] }} */ ({}));
  useEffect(() => {
    if (!text) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const { data } = await get(withQuery("/v1/search", { text }), { signal: abort.signal }).catch(() => /** @type {{ data?: api.Hits }} */ ({}));
      if (data) setFound({ text, hits: data.hits });
    }, SETTLE);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return text && found.text === text && found.hits ? found.hits : null;
}

export function Search() {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(0);
  const input = useRef(/** @type {any} */ (null));
  const hits = useHits(text);
  useLayoutEffect(() => { // before it is seen, so that no key is lost
    /** @param {KeyboardEvent} event */
    const focus = (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "") || document.querySelector("dialog[open]");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.current.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  useEffect(() => setChosen(0), [text]);
  /** @param {api.Hit} hit */
  const choose = (hit) => {
    setOpen(false);
    setText("");
    input.current.blur();
    go(pageOf(hit));
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "Escape") {
      setOpen(false);
      if (!open) input.current.blur();
    }
    if (!hits?.length) return;
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setOpen(true);
      setChosen((chosen + step + hits.length) % hits.length);
    }
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (hits?.length) choose(hits[chosen]);
  };
  const shown = open && hits;
  return html`
    <form class="search" role="search" onSubmit=${submit}>
      <input id="search" ref=${input} value=${text} placeholder="Search ( / )" aria-label="Search machines, groups, hosts, events and rollouts"
        role="combobox" autocomplete="off" aria-autocomplete="list" aria-expanded=${shown ? "true" : "false"} aria-controls="hits"
        aria-activedescendant=${shown && hits.length ? `hit-${chosen}` : undefined}
        onInput=${(event) => { setText(event.target.value.trim()); setOpen(true); }}
        onKeyDown=${key} onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} />
      <ul id="hits" class="hits" role="listbox" aria-label="Hits" hidden=${!shown || !hits.length}>
        ${(hits ?? []).map((hit, n) => html`
          <li key=${hit.kind + hit.name} id=${`hit-${n}`} role="option" aria-selected=${n === chosen ? "true" : "false"}
            onMouseDown=${(event) => { event.preventDefault(); choose(hit); }}>
            <span class="quiet">${hit.kind}</span> ${hit.name} <span class="quiet">${about(hit)}</span>
          </li>`)}
      </ul>
      <p class="hits" role="status" hidden=${!shown || hits.length > 0}>${shown && !hits.length && "Nothing has such a name or id."}</p>
    </form>
  `;
}

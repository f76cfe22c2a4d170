// Why something waits, in the service's own words.
import { html } from "../html.js";
import { useResource } from "../hooks.js";
import { address } from "../router.js";
import { When } from "./basics.js";
import { EventLink, Several } from "./links.js";
import { at, listed } from "./text.js";

/** @param {{ instant: portal.Instant }} props */
export const Until = ({ instant }) => instant && html` <span class="quiet">until ${at(instant)}, <${When} instant=${instant} /></span>`;

// A link to an event that says what it is.
/** @param {{ id: string }} props */
function NamedEvent({ id }) {
  const { data } = useResource(address("v1", "events", id));
  return html`<${EventLink} id=${id}>${data && `${data.type} of ${listed(data.machines)} `}<code>${id.slice(0, 8)}</code><//>`;
}

// What else is known about a hold, besides its sentence.
/** @param {{ of: api.Hold }} props */
export const Details = ({ of }) => html`
  ${of.until && html`<p class="quiet">Until ${at(of.until)}, <${When} instant=${of.until} />.</p>`}
  ${of.waits_for?.length > 0 && html`<p>It waits for <${Several} of=${of.waits_for} as=${NamedEvent} />.</p>`}
  ${of.unblocked_by && html`<p class="quiet">Unblocked by ${of.unblocked_by}.</p>`}
`;

/** @param {{ of: api.Hold }} props */
export const Hold = ({ of }) => html`
  <li>
    <strong>${of.message}</strong>
    <${Details} of=${of} />
  </li>
`;

// Only the sentence is announced when it changes, and not the countdowns beside it.
/** @param {{ message: string, children?: portal.Children }} props */
export const Explanation = ({ message, children }) => html`
  <section class="explanation" aria-label="Explanation">
    <p class="message" aria-live="polite">${message}</p>
    ${children}
  </section>
`;

// The sentence alone, in a row of a table. `of`: the path of a resource that has an explanation.
/** @param {{ of: `/v1/events/${string}` | `/v1/rollouts/${string}` }} props */
export function Explained({ of }) {
  const { data } = useResource(`${of}/explain`);
  const wait = data && "waits" in data ? data.waits[0] : undefined;
  return wait?.message ?? data?.message ?? "";
}

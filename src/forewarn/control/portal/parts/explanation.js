// Why something waits, in the service's own words.
import { html } from "../html.js";
import { When } from "./basics.js";
import { EventLink, Several } from "./links.js";
import { at } from "./text.js";

export const Until = ({ instant }) => instant && html` <span class="quiet">until ${at(instant)}, <${When} instant=${instant} /></span>`;

export const Hold = ({ of }) => html`
  <li>
    <strong>${of.message}</strong><${Until} instant=${of.until} />
    ${of.waits_for?.length > 0 && html`<p>It waits for <${Several} of=${of.waits_for} as=${EventLink} />.</p>`}
    ${of.unblocked_by && html`<p class="quiet">Unblocked by ${of.unblocked_by}.</p>`}
  </li>
`;

export const Explanation = ({ message, children }) => html`
  <section class="explanation" aria-live="polite">
    <p class="message">${message}</p>
    ${children}
  </section>
`;

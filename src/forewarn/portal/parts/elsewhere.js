// Where to go if this control node only follows: the same page of the one that decides.
import { html } from "../html.js";

/** @param {string} address */
const isWeb = (address) => URL.canParse(address) && ["http:", "https:"].includes(new URL(address).protocol);

/** @param {{ leader?: string }} props */
export const Elsewhere = ({ leader }) =>
  leader && isWeb(leader) ? html`<p><a href=${new URL(location.pathname + location.search, leader).href}>This page on the control node that decides</a></p>` : null;

// Said on every page of a control node that follows.
/** @param {{ session: api.Session }} props */
export const Follows = ({ session }) =>
  !session.decides &&
  html`
    <section class="halt">
      <p>This control node follows, so nothing can be changed here. ${session.leader ? `Control node ${session.leader.name} decides.` : "No control node decides at the moment."}</p>
      <${Elsewhere} leader=${session.leader?.address} />
    </section>
  `;

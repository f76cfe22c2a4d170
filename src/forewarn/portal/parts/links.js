// Names that lead to their pages.
import { html } from "../html.js";
import { address, Link } from "../router.js";
import { useSession } from "../session.js";
import { grouped } from "./text.js";

/**
 * @param {string} kind
 * @returns {(props: { name?: string }) => portal.Children}
 */
const to = (kind) => ({ name }) => (name ? html`<${Link} to=${address(kind, name)}>${name}<//>` : null);

export const MachineLink = to("machines");
export const GroupLink = to("groups");
const Host = to("hosts");

// Tenants see nothing of a host but its name.
/** @param {{ name?: string }} props */
export const HostLink = ({ name }) => (useSession().role === "tenant" ? name : html`<${Host} name=${name} />`);

// To maintenance configurations, which only those may see who see all groups.
/** @param {{ children?: portal.Children }} props */
export const WindowsLink = ({ children }) => (useSession().limited ? children : html`<${Link} to="/maintenance">${children}<//>`);

/** @param {{ id: string, children?: portal.Children }} props */
export const EventLink = ({ id, children }) => html`<${Link} to=${address("events", id)} title=${id}>${children ?? html`<code>${id.slice(0, 8)}</code>`}<//>`;

/** @param {{ id: string, children?: portal.Children }} props */
export const RolloutLink = ({ id, children }) => html`<${Link} to=${address("rollouts", id)} title=${id}>${children ?? html`<code>${id.slice(0, 8)}</code>`}<//>`;

// Several, separated by commas: the first few, and how many more there are. `count`: of all, if these are not all.
/** @param {{ of: string[], most?: number, count?: number, as: portal.Link }} props */
export const Several = ({ of, most = 3, count = of.length, as }) => html`
  ${of.slice(0, most).map((name, n) => html`${n > 0 && ", "}<${as} key=${name} name=${name} id=${name} />`)}
  ${count > most && html` <span title=${of.join(", ")}>and ${grouped(count - most)} more</span>`}
`;

// Who did something: the name of a token, of a machine, or a rollout.
/** @param {{ name: string }} props */
export function Actor({ name }) {
  const [kind, id] = name.split(" ");
  return kind === "rollout" && id ? html`rollout <${RolloutLink} id=${id} />` : name;
}

// What caused an event: a step of a rollout, or the maintenance of a host.
/** @param {{ of: string }} props */
export function Cause({ of }) {
  const [kind, id, ...rest] = of.split("/");
  if (kind === "rollout" && id) return html`rollout <${RolloutLink} id=${id} /> ${rest.join("/")}`;
  if (kind === "host" && id) return html`maintenance of <${HostLink} name=${id} />`;
  return of;
}

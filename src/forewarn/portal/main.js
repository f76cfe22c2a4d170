// Where a browser begins: who is asking, which page, and the frame around it.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { get, onUnauthorized, request } from "./api.js";
import { useConnection, useResource } from "./hooks.js";
import { connect, disconnect } from "./live.js";
import { Link, useAddress } from "./router.js";
import { SessionContext } from "./session.js";
import { Event } from "./pages/event.js";
import { Events } from "./pages/events.js";
import { Fleet } from "./pages/fleet.js";
import { Group } from "./pages/group.js";
import { History } from "./pages/history.js";
import { Host } from "./pages/host.js";
import { Groups, Hosts, Machines } from "./pages/lists.js";
import { Login } from "./pages/login.js";
import { Machine } from "./pages/machine.js";
import { Maintenance } from "./pages/maintenance.js";
import { Rollout } from "./pages/rollout.js";
import { Rollouts } from "./pages/rollouts.js";
import { Status } from "./pages/status.js";
import { Tonight } from "./pages/tonight.js";
import { Empty, Page } from "./parts/basics.js";
import { Clock } from "./parts/clock.js";
import { Follows } from "./parts/elsewhere.js";
import { Halts, HaltAll } from "./parts/halts.js";
import { Search } from "./parts/search.js";
import { forgetTasks, Tasks } from "./parts/tasks.js";

const PAGES = [
  ["/", "Status"],
  ["/tonight", "Tonight"],
  ["/fleet", "Fleet"],
  ["/events", "Events"],
  ["/rollouts", "Rollouts"],
  ["/history", "History"],
];

/** @type {Record<string, import("preact").ComponentType<portal.Query>>} */
const LISTS = { "": Status, tonight: Tonight, fleet: Fleet, hosts: Hosts, groups: Groups, machines: Machines, maintenance: Maintenance, events: Events, rollouts: Rollouts, history: History };
const OF_FLEET = [
  ["/fleet", "Overview"],
  ["/hosts", "Hosts"],
  ["/groups", "Groups"],
  ["/machines", "Machines"],
  ["/maintenance", "Windows"],
];
/** @type {Record<string, import("preact").ComponentType<portal.Query & { name: string }>>} */
const DETAILS = { events: Event, groups: Group, hosts: Host, machines: Machine, rollouts: Rollout };

/** @param {{ path: string } & portal.Query} address */
function pageFor({ path, query }) {
  const [kind, ...rest] = path.slice(1).split("/");
  const name = rest.join("/");
  const pages = name ? DETAILS : LISTS;
  if (!Object.hasOwn(pages, kind)) return html`<${Page} title="No such page"><${Empty}>Nothing is at this address. Go to <${Link} to="/">Status<//>, or search with /.<//><//>`;
  return html`<${pages[kind]} key=${path} name=${name} query=${query} />`;
}

const AGAIN = 2_000; // milliseconds after which a service that has not answered is asked again

const Connection = () => {
  const state = useConnection();
  const said = { live: "live", connecting: "connecting…", lost: "connection lost; trying again" }[state];
  return html`<span class=${`connection ${state}`} role="status">${said}</span>`;
};

/** @param {{ session: api.Session & { commit: number }, onEnded: (why: string) => void }} props */
function Portal({ session: first, onEnded }) {
  const address = useAddress();
  const content = useRef(/** @type {any} */ (null));
  const shown = useRef(address.path);
  useEffect(() => {
    if (shown.current !== address.path) content.current.focus({ preventScroll: true }); // and not on a link that is gone
    shown.current = address.path;
    document.querySelector(".bar a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [address.path]);
  const { data: session = first } = useResource("/v1/session"); // roles, limits and control nodes change
  useEffect(() => {
    const ended = () => onEnded("The session has ended. Log in again.");
    const unsubscribe = onUnauthorized(ended);
    connect(first.commit, ended);
    return () => {
      unsubscribe();
      disconnect();
    };
  }, []);
  useEffect(() => {
    if (!session.name) onEnded("The session has ended. Log in again.");
  }, [session.name]);
  if (!session.name) return null;
  const logOut = async () => {
    await request("DELETE", "/v1/session");
    onEnded("You have logged out.");
  };
  const kind = address.path.slice(1).split("/")[0];
  const ofFleet = OF_FLEET.some(([to]) => to === `/${kind}`);
  const here = ofFleet ? "/fleet" : `/${kind}`;
  return html`<${SessionContext.Provider} value=${session}>
    <a class="skip" href="#content">Skip to the content</a>
    <nav class="bar" aria-label="Pages">
      <${Link} to="/" class="brand">forewarn<//>
      ${PAGES.map(([to, title]) => html`<${Link} to=${to} aria-current=${here === to ? "page" : undefined}>${title}<//>`)}
      <${Search} />
      <${HaltAll} />
      <${Connection} />
      <span class="who">${session.name} (${session.role})</span>
      ${session.needs_token && session.operations.includes("endSession") && html`<button class="plain" onClick=${logOut}>Log out</button>`}
    </nav>
    <${Clock} />
    <${Follows} session=${session} />
    <${Halts} />
    <main id="content" tabindex="-1" ref=${content}>
      ${ofFleet && html`<nav class="pages" aria-label="Fleet">${OF_FLEET.filter(([to]) => !(session.limited && to === "/maintenance") && !(session.role === "tenant" && to === "/hosts")).map(([to, title]) => html`<${Link} to=${to} aria-current=${`/${kind}` === to ? "page" : undefined}>${title}<//>`)}</nav>`}
      ${pageFor(address)}
    </main>
    <${Tasks} />
  <//>`;
}

function Root() {
  const [session, setSession] = useState(/** @type {(api.Session & { commit: number }) | null} */ (null));
  const [why, setWhy] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    /** @type {ReturnType<typeof setTimeout>} */
    let timer;
    const ask = () => get("/v1/session").then(
      ({ data, commit }) => (data.name ? setSession({ ...data, commit }) : setWhy(data.decides ? "This service needs a token." : "This control node follows another one. Log in at the one that decides.")),
      (error) => {
        setProblem(error.message);
        timer = setTimeout(ask, AGAIN);
      },
    );
    ask();
    return () => clearTimeout(timer);
  }, []);
  /** @param {string} message */
  const ended = (message) => {
    forgetTasks();
    setWhy(message);
    setSession(null);
  };
  if (session) return html`<${Portal} session=${session} onEnded=${ended} />`;
  if (why) return html`<${Login} why=${why} onDone=${setSession} />`;
  if (problem) return html`<main class="login"><h1>forewarn</h1><p class="problem" role="alert">${problem}</p><p class="quiet">The page tries again every two seconds.</p></main>`;
  return html`<p class="quiet" aria-busy="true">Loading…</p>`;
}

render(html`<${Root} />`, /** @type {HTMLElement} */ (document.getElementById("portal")));

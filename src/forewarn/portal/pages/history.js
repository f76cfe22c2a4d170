// The history: who did what, the newest first.
import { html } from "../html.js";
import { List } from "../parts/list.js";
import { RECORD_COLUMNS, Records } from "../parts/records.js";

/** @type {portal.Filter[]} */
const FILTERS = [
  { name: "machine", title: "Machine", example: "web_0" },
  { name: "group", title: "Group", example: "web" },
  { name: "host", title: "Host", example: "host-a" },
  { name: "event", title: "Event", example: "id, or its beginning" },
  { name: "what", title: "What", example: "raised,approved" },
  { name: "since", title: "Since", example: "2h, or a time" },
  { name: "until", title: "Until", example: "1h, or a time" },
];

/** @param {portal.Query} props */
export const History = ({ query }) => html`
  <${List} title="History" path="/v1/history" page="/history" filters=${FILTERS} columns=${RECORD_COLUMNS} cursor="before" query=${query} noun="record" empty="Nothing has happened yet.">${(/** @type {api.HistoryRecord[]} */ list, /** @type {string} */ caption, /** @type {portal.Children} */ head) => html`
    <${Records} of=${list} caption=${html`${caption} <span class="aside">The newest first</span>`} head=${head} />`}<//>
`;

// An application that prepares for maintenance.
//
//   node drain.js [--every SECONDS] [--once]

import { parseArgs } from "node:util";
import { AZURE, Client } from "./events.js";
import { Watcher } from "./watcher.js";

const { values } = parseArgs({
  options: { every: { type: "string", default: "1" }, once: { type: "boolean", default: false } },
});
const ending = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => ending.abort());

const client = new Client(process.env.FOREWARN_METADATA || AZURE);
const prepare = async () => {}; // stop the work of your application here
const watcher = new Watcher(client, prepare, (line) => console.log(line));
if (values.once) await watcher.poll();
else await watcher.watch(Number(values.every) * 1000, ending.signal);
client.close();

// Tests of the application with real maintenance; fifteen minutes of notice pass at once.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, test } from "node:test";
import { Client } from "./events.js";
import { Forewarn } from "./forewarn.js";
import { Watcher } from "./watcher.js";

const HALF_AN_HOUR = 30 * 60;
let forewarn;
before(async () => (forewarn = await Forewarn.start()));
after(() => forewarn.stop());

test("a restart is prepared for and approved", async () => {
  let prepared = 0;
  const app = await running("web_0", () => (prepared += 1));
  await forewarn.post("/v1/machines/web_0/restart");
  await forewarn.play(HALF_AN_HOUR);
  assert.deepEqual(await app.end(), [
    "web_0: Reboot Scheduled",
    "web_0: Reboot approved",
    "web_0: Reboot Started",
    "web_0: Reboot gone",
  ]);
  assert.equal(prepared, 1);
  const course = await verdict("web_0");
  assert.equal(course.approved_by, "web_0");
  assert.equal(course.in_time, true);
});

test("a freeze is ignored", async () => {
  let prepared = 0;
  const app = await running("sql-0", () => (prepared += 1));
  await forewarn.post("/v1/events", { type: "Freeze", machines: ["sql-0"], duration: 5 });
  await forewarn.play(HALF_AN_HOUR);
  assert.deepEqual(await app.end(), [
    "sql-0: Freeze Scheduled",
    "sql-0: Freeze Started",
    "sql-0: Freeze gone",
  ]);
  assert.equal(prepared, 0);
  assert.equal((await verdict("sql-0")).approved_by, "");
});

test("errors of the service are survived", async () => {
  const app = await running("Worker_IN_0");
  await forewarn.post("/v1/machines/Worker_IN_0/redeploy");
  await forewarn.play(1);
  // The event has started, and none of these answers means that it is over.
  const once = { machines: ["Worker_IN_0"], method: "GET", times: 1 };
  for (const kind of ["reset", "truncated", "empty", "no-events"])
    await forewarn.post("/v1/faults", { ...once, kind });
  // The last fault skips two polls, so that the test notices a client that takes them for the end.
  await forewarn.post("/v1/faults", { ...once, kind: "gone", skip: 2 });
  while ((await forewarn.get("/v1/faults")).some((fault) => fault.consumed < 1));
  await forewarn.play(HALF_AN_HOUR);
  assert.deepEqual(await app.end(), [
    "Worker_IN_0: Redeploy Scheduled",
    "Worker_IN_0: Redeploy approved",
    "Worker_IN_0: Redeploy Started",
    "Worker_IN_0: Redeploy gone",
  ]);
  await verdict("Worker_IN_0");
});

test("an approval whose answer is lost on a kept connection is sent again", async () => {
  const app = await running("jumpbox");
  const lost = { kind: "reset", machines: ["jumpbox"], method: "POST", times: 1 };
  await forewarn.post("/v1/faults", lost);
  await forewarn.post("/v1/machines/jumpbox/restart");
  await forewarn.play(HALF_AN_HOUR);
  assert.equal((await app.end())[1], "jumpbox: Reboot approved");
  assert.equal((await forewarn.get("/v1/verdict?machine=jumpbox")).conducts[0].approvals, 2);
});

test("a connection is kept, and one that the server closed is replaced", async (t) => {
  let connections = 0;
  let answered = 0;
  const server = http.createServer((request, response) => {
    response.end('{"DocumentIncarnation":1,"Events":[]}');
    answered += 1;
    // Closed without a notice, as by a server that no longer waits for the next request.
    if (answered === 3) response.on("finish", () => request.socket.end());
  });
  server.on("connection", () => (connections += 1));
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const client = new Client(`http://127.0.0.1:${server.address().port}`);
  t.after(() => server.close() && client.close());
  for (let poll = 0; poll < 6; poll += 1) assert.deepEqual(await client.events(), []);
  assert.equal(connections, 2);
});

/** Runs the application as a machine, until `end` is called. */
async function running(machine, prepare = () => {}) {
  const client = new Client(await forewarn.url(machine));
  const lines = [];
  const watcher = new Watcher(client, prepare, (line) => lines.push(line));
  await watcher.poll(); // a machine gets events from its first poll on
  const ending = new AbortController();
  const ended = watcher.watch(20, ending.signal);
  return {
    async end() {
      ending.abort();
      await ended;
      client.close();
      return lines;
    },
  };
}

/** Fails the test if the application did anything wrong. */
async function verdict(machine) {
  const { courses, complaints } = await forewarn.get(`/v1/verdict?machine=${machine}`);
  const wrong = complaints.filter((complaint) => complaint.severity === "wrong");
  assert.deepEqual(wrong.map(({ rule, message }) => `${rule}: ${message}`), []);
  assert.equal(courses.length, 1);
  return courses[0];
}

// A forewarn of the tests' own, as a process on a virtual clock. Copy this file: it knows nothing
// of the application.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export class Forewarn {
  /** The service with the sample fleet of forewarn dev, when it is ready. */
  static async start() {
    const room = await mkdtemp(join(tmpdir(), "forewarn-"));
    const ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    const child = spawn("forewarn", ["dev", "--clock", "virtual", ...ports], {
      env: { ...process.env, XDG_RUNTIME_DIR: room }, // not the one you may have running
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    child.stderr.setEncoding("utf8").on("data", (part) => (log += part));
    for await (const line of createInterface({ input: child.stdout })) {
      if (!line.startsWith("ready ")) continue;
      child.stdout.resume();
      return new Forewarn(child, room, JSON.parse(line.slice("ready ".length)).control);
    }
    throw new Error(`forewarn has ended before it was ready: ${log}`);
  }

  constructor(child, room, control) {
    Object.assign(this, { child, room, control });
  }

  async stop() {
    const ended = once(this.child, "exit");
    this.child.kill("SIGTERM");
    await ended;
    await rm(this.room, { recursive: true });
  }

  /** Where to ask as a machine. */
  async url(machine) {
    return (await this.get(`/v1/machines/${machine}`)).metadata_url;
  }

  /** Winds the clock, and waits at every change until whoever polls has seen it. */
  async play(seconds) {
    let { now } = await this.get("/v1/clock");
    const to = new Date(Date.parse(now) + seconds * 1000).toISOString();
    while (Date.parse(now) < Date.parse(to)) ({ now } = await this.post("/v1/clock/play", { to }));
  }

  get(path) {
    return this.#do("GET", path);
  }

  post(path, body) {
    return this.#do("POST", path, body);
  }

  /** Any call of the control API. What is refused says what would have been right. */
  async #do(method, path, body) {
    const answer = await fetch(this.control + path, {
      method,
      headers: body && { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${text}`);
    return text && JSON.parse(text);
  }
}

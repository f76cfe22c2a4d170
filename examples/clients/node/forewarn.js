// Runs forewarn as a separate process on a virtual clock, for tests. Copy this file into your project:
// it does not depend on the application.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export class Forewarn {
  /** Starts a service with the sample fleet of forewarn dev, and returns when it is ready. */
  static async start() {
    const directory = await mkdtemp(join(tmpdir(), "forewarn-"));
    const ports = ["--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"];
    const child = spawn("forewarn", ["dev", "--clock", "virtual", ...ports], {
      env: { ...process.env, XDG_RUNTIME_DIR: directory }, // separate from a service that already runs
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    child.stderr.setEncoding("utf8").on("data", (part) => (log += part));
    for await (const line of createInterface({ input: child.stdout })) {
      if (!line.startsWith("ready ")) continue;
      child.stdout.resume();
      return new Forewarn(child, directory, JSON.parse(line.slice("ready ".length)).control);
    }
    throw new Error(`forewarn ended before it was ready: ${log}`);
  }

  constructor(child, directory, control) {
    Object.assign(this, { child, directory, control });
  }

  async stop() {
    const ended = once(this.child, "exit");
    this.child.kill("SIGTERM");
    await ended;
    await rm(this.directory, { recursive: true });
  }

  /** Returns the address of the endpoint for a machine. */
  async url(machine) {
    return (await this.get(`/v1/machines/${machine}`)).metadata_url;
  }

  /** Advances the clock, and waits at every change until the clients that poll have seen it. */
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

  /** Sends a request to the control API. The error for a refused one says what would have been right. */
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

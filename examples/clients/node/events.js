// Asking for Scheduled Events and approving them. What to do about one is in drain.js.

import http from "node:http";

export const AZURE = "http://169.254.169.254";
const EVENTS = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const PATIENCE = 5_000; // milliseconds for one answer
const BROKEN = new Set(["ECONNRESET", "EPIPE"]);
const LARGEST = 1 << 20; // bytes of an answer that are read

/** Asks as the machine that it runs in, over one connection that is kept. */
export class Client {
  #base;
  #agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

  constructor(base = AZURE) {
    this.#base = base;
  }

  /** What the events call this machine. */
  name() {
    return this.#ask("GET", NAME);
  }

  /**
   * What stands in the document now. An answer that is no document is an error, never "no events":
   * the service has bad days.
   */
  async events() {
    const answer = await this.#ask("GET", EVENTS);
    const { Events } = JSON.parse(answer);
    if (!Array.isArray(Events)) throw new Error(`no document: ${answer}`);
    return Events;
  }

  /** Says that an event may start now. It cannot be taken back. */
  async approve(id) {
    await this.#ask("POST", EVENTS, JSON.stringify({ StartRequests: [{ EventId: id }] }));
  }

  close() {
    this.#agent.destroy();
  }

  async #ask(method, target, body) {
    try {
      return await this.#send(method, target, body);
    } catch (error) {
      // A kept connection may be closed by the other side just as it is used again. To ask again
      // over a new one is safe: whoever approves twice has approved.
      if (error.reused && BROKEN.has(error.code)) return this.#send(method, target, body);
      throw error;
    }
  }

  #send(method, target, body) {
    return new Promise((resolve, reject) => {
      const headers = { Metadata: "true" };
      if (body !== undefined) headers["Content-Length"] = Buffer.byteLength(body);
      // `signal` ends a request that stalls half-way, too; `timeout` would begin anew with every byte.
      const signal = AbortSignal.timeout(PATIENCE);
      const options = { method, headers, agent: this.#agent, signal };
      const request = http.request(this.#base + target, options, (response) => {
        let answer = "";
        response.setEncoding("utf8");
        response.on("data", (part) => {
          answer += part;
          if (answer.length > LARGEST) response.destroy(new Error("the answer is too large"));
        });
        response.on("error", reject);
        response.on("end", () => {
          if (response.statusCode === 200) resolve(answer);
          else reject(new Error(`${method} ${target}: ${response.statusCode}`));
        });
      });
      request.on("error", (error) => {
        reject(Object.assign(error, { reused: request.reusedSocket }));
      });
      request.end(body);
    });
  }
}

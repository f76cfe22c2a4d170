// A client of Scheduled Events: it reads the document and approves events. The application that uses
// it is in drain.js.

import http from "node:http";

export const AZURE = "http://169.254.169.254";
const EVENTS = "/metadata/scheduledevents?api-version=2020-07-01";
const NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const TIMEOUT = 5_000; // milliseconds for one answer
const BROKEN = new Set(["ECONNRESET", "EPIPE"]);
const MAX_ANSWER = 1 << 20; // bytes of an answer that are read

/** Sends requests as the machine that it runs in, over one persistent connection. */
export class Client {
  #base;
  #agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

  constructor(base = AZURE) {
    this.#base = base;
  }

  /** Returns the name of this machine in events. */
  name() {
    return this.#request("GET", NAME);
  }

  /**
   * Returns the events in the current document. An answer that is not a document is an error, never
   * "no events".
   */
  async events() {
    const answer = await this.#request("GET", EVENTS);
    const { Events } = JSON.parse(answer);
    if (!Array.isArray(Events)) throw new Error(`not a document: ${answer}`);
    return Events;
  }

  /** Allows an event to start now. An approval cannot be taken back. */
  async approve(id) {
    await this.#request("POST", EVENTS, JSON.stringify({ StartRequests: [{ EventId: id }] }));
  }

  close() {
    this.#agent.destroy();
  }

  async #request(method, target, body) {
    try {
      return await this.#send(method, target, body);
    } catch (error) {
      // The server may close a persistent connection just when it is used again. Repeating the request
      // over a new connection is safe: a second approval changes nothing.
      if (error.reused && BROKEN.has(error.code)) return this.#send(method, target, body);
      throw error;
    }
  }

  #send(method, target, body) {
    return new Promise((resolve, reject) => {
      const headers = { Metadata: "true" };
      if (body !== undefined) headers["Content-Length"] = Buffer.byteLength(body);
      // `signal` also ends a request that stalls half-way; `timeout` would start again with every byte.
      const signal = AbortSignal.timeout(TIMEOUT);
      const options = { method, headers, agent: this.#agent, signal };
      const request = http.request(this.#base + target, options, (response) => {
        let answer = "";
        response.setEncoding("utf8");
        response.on("data", (part) => {
          answer += part;
          if (answer.length > MAX_ANSWER) response.destroy(new Error("the answer is too large"));
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

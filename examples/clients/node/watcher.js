// Follows the events of one machine: it ignores a Freeze, and prepares for and approves every other
// event. The requests are in events.js.

import { setTimeout as pause } from "node:timers/promises";

export class Watcher {
  #machine;
  #seen = new Map(); // events by id, as last listed
  #approved = new Set();

  /**
   * @param client sends requests as this machine
   * @param prepare stops the work; the event is approved when it has finished
   * @param log is called with a line for every change of an event
   */
  constructor(client, prepare, log) {
    Object.assign(this, { client, prepare, log });
  }

  /** Reads the document once, prepares and approves. After an error it can be called again. */
  async poll() {
    this.#machine ||= await this.client.name();
    const document = await this.client.events();
    const ours = document.filter((event) => event.Resources?.includes(this.#machine));
    for (const event of ours) {
      if (this.#seen.get(event.EventId)?.EventStatus !== event.EventStatus) {
        this.#report(event, event.EventStatus);
        this.#seen.set(event.EventId, event);
      }
      await this.#approve(event);
    }
    const listed = new Set(ours.map((event) => event.EventId));
    for (const [id, event] of this.#seen) {
      if (listed.has(id)) continue;
      this.#report(event, "gone"); // finished or withdrawn: they look the same
      this.#seen.delete(id);
      this.#approved.delete(id);
    }
  }

  /** Polls at this interval until the signal. After an error it tries again. */
  async watch(every, signal) {
    while (!signal.aborted) {
      await this.poll().catch((error) => console.error(`retrying: ${error.message}`));
      await pause(every, undefined, { signal }).catch(() => {});
    }
  }

  async #approve(event) {
    const { EventId: id, EventStatus: status, EventType: type } = event;
    if (status !== "Scheduled" || type === "Freeze" || this.#approved.has(id)) return;
    await this.prepare(event);
    await this.client.approve(id);
    this.#approved.add(id);
    this.#report(event, "approved");
  }

  #report(event, change) {
    this.log(`${this.#machine}: ${event.EventType} ${change}`);
  }
}

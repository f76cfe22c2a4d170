// Following the events of one machine: a Freeze is sat out, everything else is prepared for and
// approved. How it is asked is in events.js.

import { setTimeout as pause } from "node:timers/promises";

export class Watcher {
  #machine;
  #seen = new Map(); // by id, as last shown
  #approved = new Set();

  /**
   * @param client asks as this machine
   * @param prepare lets go of the work; the event is approved when it has come to an end
   * @param say is told what becomes of events, one line each
   */
  constructor(client, prepare, say) {
    Object.assign(this, { client, prepare, say });
  }

  /** Asks once and does what is to be done. After an error it can simply be called again. */
  async look() {
    this.#machine ??= await this.client.name();
    const document = await this.client.events();
    const ours = document.filter((event) => event.Resources.includes(this.#machine));
    for (const event of ours) {
      if (this.#seen.get(event.EventId)?.EventStatus !== event.EventStatus) {
        this.#tell(event, event.EventStatus);
        this.#seen.set(event.EventId, event);
      }
      await this.#approve(event);
    }
    const here = new Set(ours.map((event) => event.EventId));
    for (const [id, event] of this.#seen) {
      if (here.has(id)) continue;
      this.#tell(event, "gone"); // finished or withdrawn: they look the same
      this.#seen.delete(id);
      this.#approved.delete(id);
    }
  }

  /** Looks every so often until the signal. What goes wrong is told and tried again. */
  async watch(every, signal) {
    while (!signal.aborted) {
      await this.look().catch((error) => console.error(`asking again: ${error.message}`));
      await pause(every, undefined, { signal }).catch(() => {});
    }
  }

  async #approve(event) {
    const { EventId: id, EventStatus: status, EventType: type } = event;
    if (status !== "Scheduled" || type === "Freeze" || this.#approved.has(id)) return;
    await this.prepare(event);
    await this.client.approve(id);
    this.#approved.add(id);
    this.#tell(event, "approved");
  }

  #tell(event, became) {
    this.say(`${this.#machine}: ${event.EventType} ${became}`);
  }
}

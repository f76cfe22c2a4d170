"""A good worker that goes on polling while it hands its job back, and approves afterwards."""

from __future__ import annotations

import threading

from helpers.twins.worker import Event, Worker

DRAIN_INTERVALS = 15  # between two polls that it takes to hand a job back


class ParallelWorker(Worker):
    drain_intervals = DRAIN_INTERVALS
    drained = threading.Event()

    def drain(self) -> None:
        self.drained = threading.Event()
        threading.Thread(target=self._drain, args=(self.drained,)).start()
        self.draining = True

    def _drain(self, drained: threading.Event) -> None:
        super().drain()
        drained.set()

    def awaits_approval(self, event: Event) -> bool:
        return super().awaits_approval(event) and self.drained.is_set()

    def resume(self) -> None:
        self.drained.wait()  # the event may be over before the job was handed back
        super().resume()

"""The worker with `forewarn.client`, which leaves requests, retries and names to the library."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable

from forewarn.client import ChangeKind, Client, ClientError

SHORTEST_INTERVAL = 0.05  # seconds, of the library


class ClientWorker:
    def __init__(
        self,
        endpoint: str,
        log: Callable[[str], None],
        every: float = 1.0,
        long_poll: bool = True,
    ) -> None:
        interval = max(every, SHORTEST_INTERVAL)
        self._client = Client(endpoint, interval=interval, long_poll=long_poll)
        self._log = log
        self._jobs = itertools.count(1)
        self._job: int | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until `stop` is set by another thread or a signal handler."""
        closing = threading.Thread(target=self._close_when, args=(stop,), daemon=True)
        closing.start()
        with contextlib.suppress(ClientError):
            self._handle_events()
        self._drain()

    def _close_when(self, stop: threading.Event) -> None:
        stop.wait()
        self._client.close()

    def _handle_events(self) -> None:
        me = self._client.identity()
        self._resume()
        disturbing: set[str] = set()
        for change in self._client.watch():
            event = change.event
            if event.type == "Freeze" or not any(map(me.matches, event.resources)):
                continue
            if change.kind in (ChangeKind.FINISHED, ChangeKind.WITHDRAWN):
                disturbing.discard(event.id)
                if not disturbing:
                    self._resume()
                continue
            disturbing.add(event.id)
            self._drain()
            if change.kind == ChangeKind.APPEARED and not event.started:
                self._log(f"approved {event.id}")
                self._client.approve(event)

    def _resume(self) -> None:
        self._job = next(self._jobs)
        self._log(f"taken {self._job}")

    def _drain(self) -> None:
        if self._job is not None:
            self._log(f"returned {self._job}")
            self._job = None

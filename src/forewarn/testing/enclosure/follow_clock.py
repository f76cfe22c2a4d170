"""Follows the clock of a service in another process, for a program under `FakeTime`.

The service is polled, so the program sees a change a moment later than the service.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

POLL_INTERVAL = 0.02  # seconds


class ClockFollower:
    """Polls `read`, in a thread, and calls `on_change` with every new time.

    `read` returns None if the time is not available, for example while the service restarts.
    """

    def __init__(self, read: Callable[[], int | None], on_change: Callable[[int], None]) -> None:
        self._read, self._on_change = read, on_change
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="clock", daemon=True)

    def _follow(self) -> None:
        last = None
        while not self._stopped.wait(POLL_INTERVAL):
            at = self._read()
            if at is not None and at != last:
                self._on_change(at)
                last = at

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

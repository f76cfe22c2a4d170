"""Patience that is counted in what this process gets done: a client that polls in a thread is not
given up because the computer is busy with something else, and nobody waits long for one that does
not poll."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn.service.engine import catch_up
from forewarn.support import guard

TICK = 1 / 256  # seconds of patience, so that all times are exact
SPEED = 4  # times as fast as real time, on a computer that is not busy


class Patience:
    """Guard time for the clock that waits for clients. It moves by a tick each time that a thread
    has slept for a moment, however long it was really kept from going on."""

    def __init__(self) -> None:
        self._now = float(int(guard.monotonic()))
        self._stands_still = False

    def monotonic(self) -> float:
        return self._now

    def stand_still(self) -> None:
        """From now on it moves by `advance` alone."""
        self._stands_still = True

    def go_on(self) -> None:
        self._stands_still = False

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(TICK / SPEED):
            if not self._stands_still:
                self._now += TICK


@contextmanager
def counted_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patience]:
    patience, stop = Patience(), threading.Event()
    monkeypatch.setattr(catch_up, "guard", patience)
    thread = threading.Thread(target=patience.run, args=(stop,), name="patience", daemon=True)
    thread.start()
    try:
        yield patience
    finally:
        stop.set()
        thread.join()

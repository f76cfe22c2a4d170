"""Tests of the kit wait for clients in real time, for as short as they can."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from forewarn.support import guard

TURN = 0.002  # seconds
MOST = 0.01  # seconds


class Turns:
    """Guard time that counts at most MOST for each turn that a thread of this process gets. Where
    the machine is busy with something else it is slow, like the clients that are waited for."""

    def __init__(self) -> None:
        self._monotonic = guard.monotonic
        self._now = self._seen = self._monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def monotonic(self) -> float:
        return self._now

    def _run(self) -> None:
        while not self._over.wait(TURN):
            seen = self._monotonic()
            self._now += min(seen - self._seen, MOST)
            self._seen = seen

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture(autouse=True)
def _patience_depends_on_turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Turns() as turns:
        monkeypatch.setattr(guard, "monotonic", turns.monotonic)
        yield
        monkeypatch.undo()

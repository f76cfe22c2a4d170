"""What is in flight: an entry for every command, commit, driver call and wake-up not yet done.

When the ledger is idle, everything that was started has happened and is visible. A caller that
moves virtual time waits for that; if it takes too long, the error names what has not ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds of guard time before an entry counts as hanging


class Hung(Exception):
    """Something did not end in time; the message names it."""


class Ledger:
    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def hold(self, what: str) -> Iterator[None]:
        self.take(what)
        try:
            yield
        finally:
            self.release(what)

    def take(self, what: str) -> None:
        self._held[what] += 1
        self._idle.clear()

    def release(self, what: str) -> None:
        self._held[what] -= 1
        if self._held[what] <= 0:
            del self._held[what]
        if not self._held:
            self._idle.set()

    async def idle(self, patience: float = PATIENCE) -> None:
        try:
            async with asyncio.timeout(patience):
                while self._held:
                    await self._idle.wait()
        except TimeoutError:
            names = ", ".join(f"{what} ({n})" for what, n in self._held.items())
            raise Hung(f"not done after {patience:g} s: {names}") from None

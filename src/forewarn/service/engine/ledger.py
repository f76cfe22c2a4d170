"""What is in flight: an entry for every command, commit, driver call and wake-up not yet done.

When the ledger is idle, everything that was started has happened and is visible. A caller that
moves virtual time waits for that; if nothing ends for too long, the error names what has not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds in which nothing ends, before the entries count as hanging


class Hung(Exception):
    """Something did not end in time; the message names it."""


class Ledger:
    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()
        self._released = 0  # entries so far

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
        self._released += 1
        self._held[what] -= 1
        if self._held[what] <= 0:
            del self._held[what]
        if not self._held:
            self._idle.set()

    async def idle(self, patience: float = PATIENCE) -> None:
        while self._held:
            before = self._released
            try:
                async with asyncio.timeout(patience):
                    await self._idle.wait()
            except TimeoutError:
                if self._released != before:
                    continue  # there is much to do, or the machine is busy
                names = ", ".join(f"{what} ({n})" for what, n in self._held.items())
                raise Hung(f"nothing was done for {patience:g} s: {names}") from None

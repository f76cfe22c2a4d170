"""How many programs may run at a time. Each group may always run one, so that no number of hanging
groups keeps another waiting; what a group wants to run beside that has to share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

GROUP_SHARE = 4  # one in so many of the room that groups share is for one of them, at most


class Slots:
    def __init__(self, most: int) -> None:
        self._running: Counter[str] = Counter()
        self._most = 0
        self.resize(most)

    def resize(self, most: int) -> None:
        """Whoever is in, or waits already, does so in the room as it was."""
        if most == self._most:
            return
        self._most = most
        self._shared = asyncio.Semaphore(most)
        self._share = max(1, most // GROUP_SHARE)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def entered(self, group: str) -> AsyncIterator[None]:
        if not self._running[group]:
            with _Counted(self._running, group):
                yield
            return
        share = self._shares.get(group)
        if share is None:
            share = self._shares[group] = asyncio.Semaphore(self._share)
        async with share, self._shared:
            with _Counted(self._running, group):
                yield


class _Counted:
    def __init__(self, running: Counter[str], group: str) -> None:
        self._running, self._group = running, group

    def __enter__(self) -> None:
        self._running[self._group] += 1

    def __exit__(self, *_: object) -> None:
        self._running[self._group] -= 1
        if not self._running[self._group]:
            del self._running[self._group]

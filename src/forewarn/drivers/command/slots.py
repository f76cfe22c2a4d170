"""How many programs may run at a time.

Each group may always run one program, so that groups whose programs hang do not block the others;
beyond that, groups share a limited number of slots.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

GROUP_SHARE = 4  # one group may use a quarter of the shared slots


class Slots:
    def __init__(self, limit: int) -> None:
        self._running: Counter[str] = Counter()  # programs by group
        self._limit = 0
        self.resize(limit)

    def resize(self, limit: int) -> None:
        """Change the number of shared slots. Programs that run or wait keep their old slots."""
        if limit == self._limit:
            return
        self._limit = limit
        self._shared = asyncio.Semaphore(limit)
        self._group_limit = max(1, limit // GROUP_SHARE)
        self._by_group: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, group: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for as long as the context lasts."""
        if not self._running[group]:
            with self._count(group):
                yield
            return
        own = self._by_group.get(group)
        if own is None:
            own = self._by_group[group] = asyncio.Semaphore(self._group_limit)
        async with own, self._shared:
            with self._count(group):
                yield

    @contextmanager
    def _count(self, group: str) -> Iterator[None]:
        self._running[group] += 1
        try:
            yield
        finally:
            self._running[group] -= 1
            if not self._running[group]:
                del self._running[group]

"""News of commits, in order: to listeners at once, to waiters when their group changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from forewarn.core import Group
from forewarn.store.port import Commit, Store


class Feed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        store.attach(self._told)

    async def changed(self, group: str) -> None:
        """Until the next commit that touches this group."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append(future)
        await future

    def _told(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        for name in changed:
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)

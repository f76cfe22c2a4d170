"""Asking for callers that are not known here, within limits: whoever floods the endpoint from
addresses of no machine costs nothing but the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forewarn.metadata.endpoint.limits import RateLimits
from forewarn.metadata.upstream import NotDurable
from forewarn.support import guard

MAX_AT_ONCE = 8  # addresses that are asked for at a time; callers beyond that are unknown
PER_SECOND = 20  # addresses that are asked for; callers beyond that are unknown
REMEMBERED = 1.0  # seconds for which an address is not asked for again
MAX_REMEMBERED = 4_096  # addresses; then all are forgotten


class Lookups:
    def __init__(self, find: Callable[[str], Awaitable[object]]) -> None:
        """`find` returns when the machine with an address is known, or will not be. It raises
        NotDurable if that cannot be found out."""
        self._find = find
        self._under_way: dict[str, asyncio.Event] = {}  # set when it is answered
        self._answered: dict[str, float] = {}  # until when
        self._failed: dict[str, NotDurable] = {}  # those of them that could not be found out
        self._rate = RateLimits(PER_SECOND)

    async def __call__(self, address: str) -> None:
        """Return when it is worth looking for the address once more. Raises NotDurable."""
        if (answered := self._under_way.get(address)) is not None:
            await answered.wait()
        elif self._may_ask(address):
            await self._ask(address)
        if (failed := self._failed.get(address)) is not None:
            raise NotDurable(str(failed))

    def _may_ask(self, address: str) -> bool:
        asked_before = self._answered.get(address, 0.0) > guard.monotonic()
        return (
            not asked_before and len(self._under_way) < MAX_AT_ONCE and bool(self._rate.admit(""))
        )

    async def _ask(self, address: str) -> None:
        answered = self._under_way[address] = asyncio.Event()
        if len(self._answered) >= MAX_REMEMBERED:
            self._answered.clear()
            self._failed.clear()
        try:
            await self._find(address)
            self._failed.pop(address, None)
        except NotDurable as failure:
            self._failed[address] = failure
        finally:
            del self._under_way[address]
            answered.set()
            self._answered[address] = guard.monotonic() + REMEMBERED

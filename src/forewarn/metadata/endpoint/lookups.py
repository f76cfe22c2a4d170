"""Asking for callers that are not known here, within limits: whoever floods the endpoint from
addresses of no machine costs nothing but the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forewarn.metadata.endpoint.limits import RateLimits
from forewarn.support import guard

MAX_AT_ONCE = 8  # addresses that are asked for at a time; callers beyond that are unknown
PER_SECOND = 20  # addresses that are asked for; callers beyond that are unknown
REMEMBERED = 1.0  # seconds for which an address is not asked for again
MAX_REMEMBERED = 4_096  # addresses; then all are forgotten


class Lookups:
    def __init__(self, find: Callable[[str], Awaitable[object]]) -> None:
        """`find` returns when the machine with an address is known, or will not be."""
        self._find = find
        self._under_way: dict[str, asyncio.Event] = {}  # set when it is answered
        self._answered: dict[str, float] = {}  # until when
        self._rate = RateLimits(PER_SECOND)

    async def __call__(self, address: str) -> None:
        """Return when it is worth looking for the address once more."""
        if (answered := self._under_way.get(address)) is not None:
            await answered.wait()
            return
        now = guard.monotonic()
        if self._answered.get(address, 0.0) > now or len(self._under_way) >= MAX_AT_ONCE:
            return
        if not self._rate.admit(""):
            return
        answered = self._under_way[address] = asyncio.Event()
        try:
            await self._find(address)
        finally:
            del self._under_way[address]
            answered.set()
            if len(self._answered) >= MAX_REMEMBERED:
                self._answered.clear()
            self._answered[address] = guard.monotonic() + REMEMBERED

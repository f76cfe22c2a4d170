"""Answers that are delayed on purpose, until some time has passed or the caller has gone.

The time is the service's: advancing a virtual clock past the end releases the answer, before the
advance is complete. It is never delayed for longer than that in real time either, and in process,
where the caller may be the one that advances the clock, only for MAX_STOPPED_WAIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from forewarn.metadata.endpoint.reply import (
    CLOCK_STOPPED,
    HALF_CLOSED,
    IN_PROCESS,
    Gone,
    Receive,
    Scope,
)
from forewarn.service.engine.clock import Clock, VirtualClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.scheduler import Scheduler
from forewarn.support.text import SECOND

MAX_STOPPED_WAIT = (
    10.0  # real seconds that a caller in process waits for a clock that is not advanced
)
PAST = 0.0  # a time of the event loop that has long passed


class DelayedAnswers:
    def __init__(self, clock: Clock, scheduler: Scheduler, ledger: Ledger) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._ledger = ledger
        self._held: set[asyncio.Timeout] = set()
        self._names = count(1)
        self._ended = False

    def __len__(self) -> int:
        return len(self._held)

    @asynccontextmanager
    async def until(self, seconds: float, scope: Scope, receive: Receive) -> AsyncIterator[None]:
        """Wait, and then run the block. Raises Gone if the caller closes or half-closes the
        connection."""
        name, taken = f"delayed answer {next(self._names)}", False
        alone = IN_PROCESS in scope and isinstance(self._clock, VirtualClock)
        real = min(seconds, MAX_STOPPED_WAIT) if alone else seconds

        async def release() -> None:
            nonlocal taken
            if deadline.expired():
                return  # it was released by real time already
            taken = True
            self._ledger.take("a delayed answer")
            deadline.reschedule(PAST)

        try:
            try:
                async with asyncio.timeout(0 if self._ended else real) as deadline:
                    self._held.add(deadline)
                    if isinstance(self._clock, VirtualClock):
                        at = self._clock.at + round(seconds * SECOND)
                        self._scheduler.alarm(name, at, release)
                    while (await receive())["type"] != "http.disconnect":
                        if HALF_CLOSED in scope:
                            break
                raise Gone
            except TimeoutError:
                if real < seconds and not taken and not self._ended:
                    scope[CLOCK_STOPPED] = True
                    raise Gone from None
                yield
        finally:
            self._held.discard(deadline)
            self._scheduler.alarm(name, None, release)
            if taken:
                self._ledger.release("a delayed answer")

    def end(self) -> None:
        """Release every answer, because the service stops."""
        self._ended = True
        for deadline in self._held:
            if not deadline.expired():
                deadline.reschedule(PAST)

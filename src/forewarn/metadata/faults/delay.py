"""Holding an answer back on purpose: until so much time has passed, or its caller has gone.

Time is the service's: whoever winds a virtual clock past the end lets the answer go, and has it
by the time that the winding is done. It is never held for longer than that in real time either,
and in process, where whoever asks may be the one who winds, only for MAX_UNWOUND.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from forewarn.metadata.endpoint.reply import HALF_CLOSED, IN_PROCESS, UNWOUND, Gone, Receive, Scope
from forewarn.service.engine.clock import Clock, VirtualClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.scheduler import Scheduler
from forewarn.support.text import SECOND

MAX_UNWOUND = 10.0  # real seconds that somebody in process waits for a clock that nobody winds
AT_ONCE = 0.0  # an instant of the loop's time that has long passed


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
        """Waits, and then lets what is inside be done. Raises Gone if the caller hangs up, or
        says that it will say no more, which looks the same."""
        name, taken = f"held/{next(self._names)}", False
        alone = IN_PROCESS in scope and isinstance(self._clock, VirtualClock)
        real = min(seconds, MAX_UNWOUND) if alone else seconds

        async def let_go() -> None:
            nonlocal taken
            if deadline.expired():
                return  # it has gone by real time already
            taken = True
            self._ledger.take("an answer that was held back")
            deadline.reschedule(AT_ONCE)

        try:
            try:
                async with asyncio.timeout(0 if self._ended else real) as deadline:
                    self._held.add(deadline)
                    if isinstance(self._clock, VirtualClock):
                        at = self._clock.at + round(seconds * SECOND)
                        self._scheduler.alarm(name, at, let_go)
                    while (await receive())["type"] != "http.disconnect":
                        if HALF_CLOSED in scope:
                            break
                raise Gone
            except TimeoutError:
                if real < seconds and not taken and not self._ended:
                    scope[UNWOUND] = True
                    raise Gone from None
                yield
        finally:
            self._held.discard(deadline)
            self._scheduler.alarm(name, None, let_go)
            if taken:
                self._ledger.release("an answer that was held back")

    def end(self) -> None:
        """The service stops: nobody is held any longer."""
        self._ended = True
        for deadline in self._held:
            if not deadline.expired():
                deadline.reschedule(AT_ONCE)

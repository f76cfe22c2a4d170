"""A fair queue for the work on requests that take the slow path.

Each iteration of the event loop does a limited amount of work here, so that ordinary polls are
answered in between. Callers are served round robin, and the jobs of one caller in order. The cost
of a job is charged to its caller; one that has used more than its share is passed over until the
others have used as much. Work is counted, not timed: a unit is about a microsecond.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

Job: TypeAlias = Callable[[], int]  # returns its cost

TURN = 1_000  # units of work in one iteration of the event loop: about a millisecond
SHARE = 200  # units of work of one caller before it is the next caller's turn

log = logger("forewarn")


class FairQueue:
    def __init__(self) -> None:
        self._jobs: dict[str, deque[Job]] = {}
        self._callers: deque[str] = deque()  # who has jobs, in the order of their turns
        self._debts: dict[str, int] = {}  # of callers whose last turn cost more than their share
        self._scheduled = False
        self._failed = LogThrottle()

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def add(self, caller: str, job: Job) -> None:
        jobs = self._jobs.get(caller)
        if jobs is None:
            jobs = self._jobs[caller] = deque()
            self._callers.append(caller)
        jobs.append(job)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        left = TURN
        while self._callers and left > 0:
            left -= self._serve(self._callers.popleft())
        if self._callers:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self._scheduled = False
            self._debts.clear()

    def _serve(self, caller: str) -> int:
        """Run the next jobs of this caller, and return their cost."""
        jobs = self._jobs[caller]
        debt = self._debts.pop(caller, 0)
        spent = 0
        while jobs and debt + spent < SHARE:
            job = jobs.popleft()
            try:
                spent += max(1, job())
            except Exception as error:  # in one job; the others are not affected
                spent += SHARE
                if times := self._failed.record():
                    log.error(
                        "a guest's request could not be processed", times=times, exc_info=error
                    )
        if debt + spent > SHARE:
            self._debts[caller] = debt + spent - SHARE
        if jobs:
            self._callers.append(caller)
        else:
            del self._jobs[caller]
        return max(1, spent)

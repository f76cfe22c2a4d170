"""A fair queue for the work on requests that take the slow path.

Each iteration of the event loop does a limited amount of work here, so that ordinary polls are
answered in between. Callers are served round robin, and the jobs of one caller in order. The
processor time that a job takes is charged to its caller; one that has used more than its share is
passed over until the others have used as much.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

# Returns what is charged in advance for work that others do for it, in microseconds.
Job: TypeAlias = Callable[[], int]

TURN = 1_000  # microseconds of work in one iteration of the event loop
SHARE = 200  # microseconds of work of one caller before it is the next caller's turn

log = logger("forewarn")


class FairQueue:
    def __init__(self) -> None:
        self._jobs: dict[str, deque[Job]] = {}
        self._callers: deque[str] = deque()  # who has jobs, in the order of their turns
        self._debts: dict[str, int] = {}  # of callers whose work has cost more than their share
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

    def charge(self, caller: str, cost: int) -> None:
        """Charge a caller for work that took longer than its jobs have returned."""
        if self._scheduled:
            self._debts[caller] = self._debts.get(caller, 0) + cost

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
        """Run the next jobs of this caller, and return their cost. Passing it over costs a share,
        so that nobody's debts are paid before the event loop has had as much time for others."""
        jobs = self._jobs[caller]
        debt = self._debts.pop(caller, 0)
        spent = SHARE if debt >= SHARE else 0  # passed over
        debt -= spent
        while jobs and debt + spent < SHARE:
            job, began = jobs.popleft(), guard.processor_us()
            try:
                spent += max(1, job() + _since(began))
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


@types.coroutine
def timed(
    work: Coroutine[Any, Any, None], charge: Callable[[int], None]
) -> Generator[Any, Any, None]:
    """Run a coroutine, and charge the microseconds that each of its steps takes."""
    step, argument = work.send, None
    while True:
        began = guard.processor_us()
        try:
            awaited = step(argument)
        except StopIteration:
            return
        finally:
            charge(_since(began))
        try:
            step, argument = work.send, (yield awaited)
        except BaseException as error:
            step, argument = work.throw, error


def _since(began: int) -> int:
    return guard.processor_us() - began

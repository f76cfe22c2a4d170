"""The service's time, in a test's hands.

Winding itself is the service's: here it is asked for, from whatever thread the test runs in.
Python's own time is `time_patch.py`'s.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from forewarn.core.time import LAST, Duration, Time
from forewarn.service.engine.catch_up import ATTENTIVE, Stopped
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.support.text import parse_duration
from forewarn.testing.kit.errors import RefusedByService
from forewarn.testing.kit.time_patch import TimePatch

if TYPE_CHECKING:
    from forewarn.testing.kit.service import Service

REAL = "this service runs on real time: it can be neither wound nor followed (real_time=False)"
IN_A_LOOP = (
    "playing waits for clients, and here it would wait in the loop that they may run in;"
    " use 'async with', or 'await service.aio(…)'"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Span: TypeAlias = str | float | timedelta
T = TypeVar("T")

VOICE: ContextVar[str] = ContextVar("forewarn_voice", default="")


def voice() -> str:
    """Who speaks here: a task, or a thread. Whoever plays a clock does not ask meanwhile, and so
    is not waited for."""
    if said := VOICE.get():
        return said
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop in this thread
        task = None
    return f"task {id(task)}" if task is not None else f"thread {threading.get_ident()}"


@contextmanager
def one_voice() -> Iterator[None]:
    """What a thread does meanwhile on behalf of this task is said with the task's voice."""
    token = VOICE.set(voice())
    try:
        yield
    finally:
        VOICE.reset(token)


class Clock:
    """The service's time, in a test's hands."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=self._service.node.writer.now().at)

    @property
    def speed(self) -> float:
        """How many seconds it runs by itself in one of real time; 0: it stands still."""
        return self._virtual_time.speed

    def advance(self, by: Span, *, until: Callable[[], bool] | None = None) -> bool:
        """Jump, stopping at everything due on the way; returns when all of it is visible.

        With `until`, which is asked at every stop, no further than where it says yes; False if
        it never did.
        """
        virtual_time, to = self._virtual_time, self._after(by)
        if until is None:
            self._run(virtual_time.advance(to))
            return True
        return self._stop_by_stop(until, to, lambda at: virtual_time.step(at, play=False))

    def play(
        self,
        by: Span,
        *,
        until: Callable[[], bool] | None = None,
        patience: float = ATTENTIVE,
    ) -> bool:
        """Jump as `advance` does, but wait at every visible change until each machine that polled
        in the last `patience` real seconds has fetched it and come back. `until` as there."""
        if _in_a_loop():
            raise RefusedByService(IN_A_LOOP)
        virtual_time, to, mine = self._virtual_time, self._after(by), voice()
        if until is None:
            self._run(virtual_time.play(to, patience, mine))
            return True
        return self._stop_by_stop(until, to, lambda at: virtual_time.step(at, True, patience, mine))

    def resume(self, speed: float = 1.0) -> None:
        """Let it run by itself, so many seconds in one of real time. It waits for clients at
        every visible change, as `play` does."""
        try:
            self._run(self._virtual_time.resume(speed))
        except ValueError as error:
            raise RefusedByService(str(error)) from error

    def pause(self) -> None:
        """Let it stand still, wherever it is; what was due by then has happened."""
        self._run(self._virtual_time.pause())
        self._service.settle()

    def interrupt(self, lost: Span, what: str = "the service was away") -> None:
        """Let time pass while nobody serves."""
        clock, to = self._virtual_time.clock, self._after(lost)

        async def jump() -> None:
            clock.interrupt(what, max(0, to - clock.at))
            await self._service.node.ledger.idle()

        self._service.run(jump())

    def patch(self) -> TimePatch:
        """Let Python's own time (`time.time()`, `datetime.now()` …) be the service's, in this
        whole process: as a context manager, or over a function. Sleeping and `time.monotonic()`
        stay as they are."""
        return TimePatch(self._virtual_time.clock)

    def asking(self, machine: str) -> AbstractContextManager[None]:
        """A request by the test itself: whoever makes it is told apart from the client."""
        virtual_time = self._service.node.virtual_time
        return virtual_time.catch_up.speaking(machine, voice()) if virtual_time else nullcontext()

    @property
    def _virtual_time(self) -> VirtualTime:
        virtual_time = self._service.node.virtual_time
        if virtual_time is None:
            raise RefusedByService(REAL)
        return virtual_time

    def _after(self, by: Span) -> Time:
        to = self._virtual_time.clock.at + _length(by)
        if to > LAST:
            raise RefusedByService("a clock is wound no further than the year 9000")
        return to

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._service.run(work)
        except Stopped as stopped:
            raise RefusedByService("the service has stopped, and its clock with it") from stopped

    def _stop_by_stop(
        self, until: Callable[[], bool], to: Time, step: Callable[[Time], Coroutine[Any, Any, bool]]
    ) -> bool:
        """`until` is asked in the test's own thread: it may ask the service anything. Where it
        says yes, all that is visible has been seen, from the very first stop on."""
        self._run(step(self._virtual_time.clock.at))
        done = False
        while not until():
            if done:
                return False
            done = self._run(step(to))
        return True


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _length(said: Span) -> Duration:
    if isinstance(said, timedelta):
        if said < timedelta():
            raise ValueError(f"time does not go back: {said}")
        return said // timedelta(microseconds=1)
    return parse_duration(f"{said:f}" if isinstance(said, float) else str(said))

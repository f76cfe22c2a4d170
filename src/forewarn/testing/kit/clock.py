"""`service.clock`: the service's virtual time, as a test moves it from its own thread.

The service itself decides what happens on the way. Python's own time is `time_patch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from forewarn.core.time import MAX_TIME, Time
from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME, Patience, Stopped
from forewarn.service.engine.clock import AWAY
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.support.instants import to_datetime
from forewarn.testing.durations import Duration, in_microseconds, in_seconds
from forewarn.testing.errors import RefusedError
from forewarn.testing.impacts import in_callback
from forewarn.testing.kit.time_patch import TimePatch
from forewarn.testing.session import Session, caller_id, refuse_in_a_loop

REAL_TIME = "this service runs in real time, which cannot be moved; use real_time=False"
IN_A_CALLBACK = (
    "the clock stands still while a callback for an impact runs; move it when the callback has"
    " returned"
)

T = TypeVar("T")


class Clock:
    """The service's time, as `service.clock`."""

    def __init__(self, session: Any) -> None:  # Any: what it is, is not for users
        self._session: Session = session

    @property
    def now(self) -> datetime:
        """The time by the service's clock, in UTC."""
        return to_datetime(self._session.node.writer.now().at)

    @property
    def speed(self) -> float:
        """How many seconds pass by themselves in one second of real time; 0 if it stands still."""
        return self._virtual_time.speed

    def advance(self, by: Duration, *, until: Callable[[], bool] | None = None) -> bool:
        """Move the clock, stopping at everything that is due on the way.

        When it returns, all of that has happened and is visible. Clients get no time to poll on the
        way; use `play` for that.

        Args:
            by: How far to move it, as seconds, a timedelta or text such as `"15m"`.
            until: Called at every stop; the clock moves no further once it returns True.

        Returns:
            False if `until` was given and never returned True.

        Raises:
            RefusedError: The service runs in real time, or has stopped.
        """
        virtual_time, to = self._virtual_time, self._after(by)
        if until is None:
            self._run(virtual_time.advance(to))
            return True
        return self._stop_by_stop(until, to, virtual_time.step)

    def play(
        self,
        by: Duration,
        *,
        until: Callable[[], bool] | None = None,
        timeout: Duration = POLL_PATIENCE,
        reaction_time: Duration = REACTION_TIME,
    ) -> bool:
        """Move the clock as `advance` does, and let polling clients see every change on the way.

        At every visible change it waits until each machine that has been polling has fetched the
        new document and polled again. A machine that has seen an event of its own then gets time to
        approve it or to report that it is ready.

        Args:
            by: How far to move it, as seconds, a timedelta or text such as `"15m"`.
            until: Called at every stop; the clock moves no further once it returns True.
            timeout: The real time for which a machine is waited for, by default 5 seconds. A client
                that polls less often is waited for longer, up to 30 seconds. One that does not poll
                in this time is reported in the verdict.
            reaction_time: The real time, by default 1 second, that a machine gets for each of
                its own events. A client that prepares in the background may need more.

        Returns:
            False if `until` was given and never returned True.

        Raises:
            RefusedError: The service runs in real time, or this would block a running event loop.
        """
        refuse_in_a_loop("play()", "'async with', or 'await service.to_thread(…)'")
        virtual_time, to = self._virtual_time, self._after(by)
        patience = Patience(in_seconds(timeout), in_seconds(reaction_time), caller_id())
        if until is None:
            self._run(virtual_time.play(to, patience))
            return True
        return self._stop_by_stop(until, to, lambda at: virtual_time.step(at, patience))

    def resume(self, speed: float = 1.0) -> None:
        """Let the clock run by itself, waiting for clients at every visible change as `play` does.

        Args:
            speed: How many seconds pass in one second of real time.

        Raises:
            RefusedError: The service runs in real time, or the speed is not a positive number.
        """
        try:
            self._run(self._virtual_time.resume(speed))
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def pause(self) -> None:
        """Stop a clock that runs by itself. Everything that was due by then has happened."""
        self._run(self._virtual_time.pause())
        self._session.settle()

    def interrupt(self, lost: Duration, reason: str = AWAY) -> None:
        """Let time pass as if the service had not been running meanwhile.

        Args:
            lost: How long it was interrupted, as seconds, a timedelta or text such as `"2h"`.
            reason: The reason that the history gives; by default that it was not running.
        """
        clock, to = self._virtual_time.clock, self._after(lost)

        async def jump() -> None:
            clock.interrupt(reason, max(0, to - clock.at))
            await self._session.node.ledger.idle()

        self._session.run(jump())

    def patch(self) -> TimePatch:
        """Make Python's own time the service's, in the whole process.

        The result is a context manager and a decorator. `time.time()`, `datetime.now()` and the
        like follow the clock; sleeping and `time.monotonic()` do not change.
        """
        return TimePatch(self._virtual_time.clock)

    @property
    def _virtual_time(self) -> VirtualTime:
        virtual_time = self._session.node.virtual_time
        if virtual_time is None:
            raise RefusedError(REAL_TIME)
        return virtual_time

    def _after(self, by: Duration) -> Time:
        to = self._virtual_time.clock.at + in_microseconds(by)
        if to > MAX_TIME:
            raise RefusedError("the clock cannot be moved beyond the year 9000")
        return to

    def _next_due(self) -> Time | None:
        """Return when something is due next, once everything that is under way has happened."""
        return self._run(self._virtual_time.next_due())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if in_callback():
            work.close()
            raise RefusedError(IN_A_CALLBACK)
        try:
            result = self._session.run(work)
        except Stopped as stopped:
            raise RefusedError("the service has stopped, and its clock with it") from stopped
        self._session.raise_from_callbacks()
        return result

    def _stop_by_stop(
        self, until: Callable[[], bool], to: Time, step: Callable[[Time], Coroutine[Any, Any, bool]]
    ) -> bool:
        """Call `until` in the test's own thread, where it may use the service, at every stop. By
        then clients have seen all that is visible, from the very first stop on."""
        self._run(step(self._virtual_time.clock.at))
        done = False
        while not until():
            if done:
                return False
            done = self._run(step(to))
        return True

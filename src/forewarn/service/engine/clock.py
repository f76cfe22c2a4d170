"""Domain time, by which everything is decided and which guests are shown. It never goes back.

A clock also knows whether the service has run without interruption: after an outage, a stall or a
step of the wall clock it says since when it is steady again and how much time was lost, and
decisions take that into account.

A wall clock that is off by more than `ClockLimits` allow is not followed. Domain time then follows
a kernel clock that cannot be set, and `World.untrusted` says so, until the wall clock is right
again or an operator accepts it.

A process that follows another one has a clock as well, and its time may be wrong, but it has
promised nobody anything. When it begins to decide, `resume` begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from forewarn.core.time import DAY, MINUTE, SECOND, Duration, Durations, Time
from forewarn.core.world import UntrustedClock, World
from forewarn.service.engine.clock_error import ClockError
from forewarn.support import guard
from forewarn.support.text import LONGEST

STEP: Duration = 2 * SECOND  # the wall clock may drift; more than this at once is a step
STALL: Duration = 10 * SECOND  # between two readings of the clock: the process was stalled
# More than NTP corrects in a clock that works and than a paused virtual machine usually misses,
# less than the mistake of a time zone.
MAX_CLOCK_STEP: Duration = 5 * MINUTE
# Longer than a service is usually off, shorter than the error of a clock that was never set.
MAX_DOWNTIME: Duration = 30 * DAY
READ_EVERY = 1.0  # seconds of guard time between two readings of the wall clock while waiting

# Causes of interruptions, for the log; other modules have further ones.
AWAY = "the service was not running"
STALLED = "the process was stalled"
STEPPED = "the wall clock was stepped"
STEPPED_TOO_FAR = "the wall clock was stepped too far to be followed"


class Interruption(msgspec.Struct, frozen=True):
    """An outage or a jump of time: `lost` of domain time passed without the service."""

    what: str
    at: Time
    lost: Duration


class ClockLimits(msgspec.Struct, frozen=True):
    """How far the wall clock may be off before it is no longer followed."""

    step: Duration = MAX_CLOCK_STEP  # while the service runs; and behind at the start
    downtime: Duration = MAX_DOWNTIME  # ahead at the start, after the service was off


class Clock(Protocol):
    def now(self, rules: Durations) -> World: ...

    def resume(
        self,
        served_until: Time | None,
        lost: Duration,
        *,
        copied: bool = False,
        confirmed: bool = False,
        steady_since: Time | None = None,
    ) -> bool:
        """Continue where an earlier run ended, whatever time this clock has shown before. None:
        there was no earlier run. A state that was `copied` may be of any age. If another clock has
        `confirmed` the wall clock, a state that is ahead of it was written by a wrong one: time
        stands still until the wall clock has caught up. With `steady_since`, a short time without a
        run was no interruption, and the last one ended then (0: there was none). Returns whether
        it was none."""
        ...

    def on_interruption(self, listener: Callable[[Interruption], None]) -> None: ...

    def restored(self, at: Time) -> None:
        """Note that a backup was restored at this time; part of `now()` until the grace ends."""
        ...

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        """Wait until the instant, or until `woken` is set. Only the scheduler calls it."""
        ...


class _Continuity:
    """The state of every clock: the instant reached, and how much time was lost."""

    def __init__(self) -> None:
        self._floor: Time = 0
        self._steady_since: Time | None = None
        self._lost: Duration = 0
        self._restored: Time | None = None
        self._untrusted: UntrustedClock | None = None
        self._listeners: list[Callable[[Interruption], None]] = []

    def on_interruption(self, listener: Callable[[Interruption], None]) -> None:
        self._listeners.append(listener)

    def restored(self, at: Time) -> None:
        self._restored = at
        if self._steady_since is None:
            self._steady_since = self._floor

    def _now(self, at: Time, rules: Durations) -> World:
        now = World(
            at=at,
            steady_since=self._steady_since,
            lost=self._lost,
            restored=self._restored,
            untrusted=self._untrusted,
            rules=rules,
        )
        if self._restored is not None and (now.grace_ends is None or at >= now.grace_ends):
            self._restored = None  # a later outage has nothing to do with it
        return now

    def _interrupted(self, what: str, at: Time, lost: Duration) -> None:
        self._lost += lost
        self._steady_since = at
        for listener in self._listeners:
            listener(Interruption(what, at, lost))

    def _resume(
        self, at: Time, served_until: Time | None, lost: Duration, steady_since: Time | None
    ) -> bool:
        self._lost, self._steady_since, self._restored = lost, None, None
        if served_until is None:
            return False
        away = max(0, at - served_until)
        if steady_since is None or away > STALL:
            self._interrupted(AWAY, at, away)
            return False
        self._lost += away
        self._steady_since = steady_since or None
        return True


class RealClock(_Continuity):
    """The wall clock, compared with a clock that cannot be set. Without limits it is always
    followed."""

    def __init__(
        self,
        wall: Callable[[], int] = guard.wall_us,
        monotonic: Callable[[], int] = guard.boottime_us,
        limits: ClockLimits | None = None,
    ) -> None:
        super().__init__()
        self._wall = wall
        self._monotonic = monotonic
        self._limits = limits
        self._most_ahead: Duration = 0  # at which an untrusted clock is trusted again
        self._confirmed = False  # the wall clock, by another one
        self._begin()
        self._floor = self._wall()

    def _begin(self) -> Time:
        """Start to compare the two clocks, and return the time of the wall clock."""
        wall, self._read_at = self._wall(), self._monotonic()
        self._offset = wall - self._read_at
        return wall

    def now(self, rules: Durations) -> World:
        return self._now(self._read(), rules)

    def resume(
        self,
        served_until: Time | None,
        lost: Duration,
        *,
        copied: bool = False,
        confirmed: bool = False,
        steady_since: Time | None = None,
    ) -> bool:
        wall = self._begin()
        self._untrusted, self._confirmed = None, confirmed
        downtime = LONGEST if copied or self._limits is None else self._limits.downtime
        if served_until is not None and self._is_off(wall - served_until, downtime):
            self._floor = served_until
            self._distrust(wall, downtime)
        else:
            self._floor = max(wall, served_until or 0)
        return self._resume(self._floor, served_until, lost, steady_since)

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        while not woken.is_set():
            at, left = self._read(), READ_EVERY
            if until is not None:
                left = min(left, (until - at) / SECOND)
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await woken.wait()
            except TimeoutError:
                continue

    def _read(self) -> Time:
        wall, monotonic = self._wall(), self._monotonic()
        passed, self._read_at = monotonic - self._read_at, monotonic
        stepped, self._offset = wall - monotonic - self._offset, wall - monotonic
        if self._untrusted is not None:
            return self._read_untrusted(wall, passed, stepped)
        before, expected = self._floor, max(self._floor, wall - stepped)
        if self._limits and self._is_off(wall - expected, self._limits.step):
            self._floor = expected
            self._distrust(wall, self._limits.step)
            lost = expected - before if passed > STALL else 0
            self._interrupted(STEPPED_TOO_FAR, expected, lost)
            return self._floor
        # If the wall stepped back, time stands still until it has caught up: an instant that
        # guests were promised not to be disturbed before must not come early.
        self._floor = max(self._floor, wall)
        if abs(stepped) > STEP:
            self._interrupted(STEPPED, self._floor, max(0, stepped))
        elif passed > STALL:
            self._interrupted(STALLED, self._floor, max(0, self._floor - before))
        return self._floor

    def _read_untrusted(self, wall: Time, passed: Duration, stepped: Duration) -> Time:
        """Let time pass as the kernel measures it, until the wall clock is right again."""
        assert self._limits is not None
        before = self._floor
        if not self._confirmed or before < wall:
            self._floor += passed
        ahead = wall - self._floor
        if not self._is_off(ahead, self._most_ahead):
            self._untrusted = None
            self._floor = max(self._floor, wall)
            self._interrupted("the wall clock is right again", self._floor, max(0, ahead))
        else:
            if abs(stepped) > STEP:
                self._distrust(wall, self._most_ahead)
            if passed > STALL:
                self._interrupted(STALLED, self._floor, self._floor - before)
        return self._floor

    def _is_off(self, ahead: Duration, most_ahead: Duration) -> bool:
        """Whether the wall clock is further ahead, or further behind, than it may be."""
        return self._limits is not None and not -self._limits.step <= ahead <= most_ahead

    def _distrust(self, wall: Time, most_ahead: Duration) -> None:
        self._untrusted = UntrustedClock(wall=wall, since=self._floor)
        self._most_ahead = most_ahead

    def accept(self) -> Callable[[], None]:
        """Follow the wall clock from here on, even if that means going back. Returns a function
        that undoes this. Time served is continuous: the difference is added to the time lost, or
        subtracted from it if time goes back."""
        self._read()
        before = self._floor, self._lost, self._steady_since, self._untrusted, self._most_ahead
        wall, self._untrusted = self._wall(), None
        lost, self._floor = wall - self._floor, wall
        self._interrupted("an operator has accepted the wall clock", wall, lost)

        def undo() -> None:
            self._floor, self._lost, self._steady_since, self._untrusted, self._most_ahead = before

        return undo


class FollowedClock(_Continuity):
    """Time as another process sends it, and as the kernel measures it in between. It goes back only
    when it is reset."""

    def __init__(self, monotonic: Callable[[], int] = guard.boottime_us) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._offset = guard.wall_us() - monotonic()  # until the first time is received
        self.error = ClockError(self._read(), self._offset)
        self.on_error: Callable[[], None] = lambda: None  # called when it may have changed

    def follow(self, at: Time, *, asked: int | None = None, reset: bool = False) -> None:
        """Follow a time that was received just now, and `asked` for at this time of the kernel."""
        before, monotonic = self._read(), self._monotonic()
        self.error.shows(before - monotonic)
        offset = at - monotonic
        if reset or not -STEP < offset - self._offset < 0:  # a little less is only delay
            self._offset = offset
        if asked is not None:
            self.error.measured(offset, at - asked, before)
            self._offset = min(self._offset, at - asked)
        self._floor = at if reset else max(self._floor, at)
        self.error.shows(self._read() - monotonic)
        self.on_error()

    def now(self, rules: Durations) -> World:
        return self._now(self._read(), rules)

    def _read(self) -> Time:
        self._floor = max(self._floor, self._offset + self._monotonic())
        return self._floor

    def resume(
        self,
        served_until: Time | None,
        lost: Duration,
        *,
        copied: bool = False,
        confirmed: bool = False,
        steady_since: Time | None = None,
    ) -> bool:
        raise NotImplementedError("the process that sends the time resumes it")

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        raise NotImplementedError("a clock that follows another process cannot be waited on")


class VirtualClock(_Continuity):
    """Time that moves only when it is set."""

    def __init__(self, at: Time) -> None:
        super().__init__()
        self._floor = at
        self._moved: list[Callable[[], None]] = []

    @property
    def at(self) -> Time:
        return self._floor

    def on_move(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function at every move, before anything that is due by then happens. Returns a
        function that ends this."""
        self._moved = [*self._moved, call]

        def end() -> None:  # from any thread: a loop over the old list is not disturbed
            self._moved = [other for other in self._moved if other is not call]

        return end

    def set(self, at: Time) -> None:
        if at < self._floor:
            raise ValueError("the clock cannot be set back")
        if at > self._floor:
            self._floor = at
            self._notify_moved()

    def interrupt(self, what: str, lost: Duration) -> None:
        """Let time jump without service, as after an outage or a step of the wall clock."""
        self._floor += lost
        self._interrupted(what, self._floor, lost)
        self._notify_moved()

    def _notify_moved(self) -> None:
        for call in self._moved:
            call()

    def now(self, rules: Durations) -> World:
        return self._now(self._floor, rules)

    def resume(
        self,
        served_until: Time | None,
        lost: Duration,
        *,
        copied: bool = False,
        confirmed: bool = False,
        steady_since: Time | None = None,
    ) -> bool:
        del copied, confirmed
        self._floor = max(self._floor, served_until or 0)
        return self._resume(self._floor, served_until, lost, steady_since)

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        del until  # setting the clock wakes the scheduler
        await woken.wait()

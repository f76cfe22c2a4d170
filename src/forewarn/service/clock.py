"""Domain time: what decides and what is shown. It never goes back.

A clock also tells whether the endpoint has been there all the time: after an outage, a stall or
a step of the wall clock it says since when service is steady again and how much time was lost,
and decisions take that into account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from forewarn import guard
from forewarn.core.time import SECOND, Duration, Now, Rules, Time

STEP: Duration = 2 * SECOND  # the wall clock may drift; more than this at once is a step
STALL: Duration = 10 * SECOND  # so long without being asked the time: nobody was serving
LOOK_EVERY = 1.0  # seconds of guard time between looks at the wall clock while waiting


class Interruption(msgspec.Struct, frozen=True):
    """The endpoint was away, or time jumped: `lost` of domain time passed unserved."""

    what: str
    at: Time
    lost: Duration


class Clock(Protocol):
    def now(self, rules: Rules) -> Now: ...

    def resume(self, served_until: Time | None, lost: Duration, floor: Time) -> None:
        """Take up where an earlier run ended; `floor` is an instant already reached."""
        ...

    def on_interruption(self, tell: Callable[[Interruption], None]) -> None: ...

    def unserved(self, what: str, lost: Duration) -> None:
        """The last `lost` of time, up to now, have passed without the endpoint being there."""
        ...

    def restored(self, at: Time) -> None:
        """A copy has become the state, at that instant: told until the grace since is over."""
        ...

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        """Until the instant has come or somebody wakes the waiter. Only the scheduler calls it."""
        ...


class _Continuity:
    """What both clocks keep: the instant reached, and what was lost on the way."""

    def __init__(self) -> None:
        self._floor: Time = 0
        self._steady_since: Time | None = None
        self._lost: Duration = 0
        self._restored: Time | None = None
        self._tell: list[Callable[[Interruption], None]] = []

    def on_interruption(self, tell: Callable[[Interruption], None]) -> None:
        self._tell.append(tell)

    def unserved(self, what: str, lost: Duration) -> None:
        self._interrupted(what, self._floor, lost)

    def restored(self, at: Time) -> None:
        self._restored = at

    def _now(self, at: Time, rules: Rules) -> Now:
        now = Now(
            at=at,
            steady_since=self._steady_since,
            lost=self._lost,
            restored=self._restored,
            rules=rules,
        )
        if self._restored is not None and (now.grace_ends is None or at >= now.grace_ends):
            self._restored = None  # a later outage has nothing to do with it
        return now

    def _interrupted(self, what: str, at: Time, lost: Duration) -> None:
        self._lost += lost
        self._steady_since = at
        for tell in self._tell:
            tell(Interruption(what, at, lost))

    def _resume(self, at: Time, served_until: Time | None, lost: Duration) -> None:
        self._lost = lost
        if served_until is not None:
            self._interrupted("the service was away", at, max(0, at - served_until))


class RealClock(_Continuity):
    """The wall clock, watched against the monotonic one."""

    def __init__(
        self,
        wall: Callable[[], int] = guard.wall_us,
        monotonic: Callable[[], int] = guard.monotonic_us,
    ) -> None:
        super().__init__()
        self._wall = wall
        self._monotonic = monotonic
        self._begin(0)

    def _begin(self, floor: Time) -> None:
        """From here on the two clocks are watched against each other."""
        wall, self._looked = self._wall(), self._monotonic()
        self._offset = wall - self._looked
        self._floor = max(self._floor, wall, floor)

    def now(self, rules: Rules) -> Now:
        return self._now(self._look(), rules)

    def resume(self, served_until: Time | None, lost: Duration, floor: Time) -> None:
        self._begin(floor)
        self._resume(self._floor, served_until, lost)

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        while not woken.is_set():
            at, left = self._look(), LOOK_EVERY
            if until is not None:
                left = min(left, (until - at) / SECOND)
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await woken.wait()
            except TimeoutError:
                continue

    def _look(self) -> Time:
        wall, monotonic = self._wall(), self._monotonic()
        stalled, self._looked = monotonic - self._looked, monotonic
        stepped, self._offset = wall - monotonic - self._offset, wall - monotonic
        # If the wall stepped back, time stands still until it has caught up: an instant that
        # guests were promised not to be disturbed before must not come early.
        before, self._floor = self._floor, max(self._floor, wall)
        if abs(stepped) > STEP:
            self._interrupted("the wall clock was stepped", self._floor, max(0, stepped))
        elif stalled > STALL:
            self._interrupted("the process stood still", self._floor, max(0, self._floor - before))
        return self._floor


class VirtualClock(_Continuity):
    """Time that moves when it is told to."""

    def __init__(self, at: Time) -> None:
        super().__init__()
        self._floor = at
        self._moved: list[Callable[[], None]] = []

    @property
    def at(self) -> Time:
        return self._floor

    def on_move(self, call: Callable[[], None]) -> Callable[[], None]:
        """Called at every move, before anything that is due by then. Returns what ends that."""
        self._moved = [*self._moved, call]

        def end() -> None:  # from any thread: whoever is going over them has the list as it was
            self._moved = [other for other in self._moved if other is not call]

        return end

    def set(self, at: Time) -> None:
        if at < self._floor:
            raise ValueError("time does not go back")
        if at > self._floor:
            self._floor = at
            self._tell_move()

    def interrupt(self, what: str, lost: Duration) -> None:
        """Let time jump with nobody serving, as after an outage or a step of the wall clock."""
        self._floor += lost
        self._interrupted(what, self._floor, lost)
        self._tell_move()

    def _tell_move(self) -> None:
        for call in self._moved:
            call()

    def now(self, rules: Rules) -> Now:
        return self._now(self._floor, rules)

    def resume(self, served_until: Time | None, lost: Duration, floor: Time) -> None:
        self._floor = max(self._floor, floor)
        self._resume(self._floor, served_until, lost)

    async def wait(self, until: Time | None, woken: asyncio.Event) -> None:
        del until  # whoever sets the clock wakes the scheduler
        await woken.wait()

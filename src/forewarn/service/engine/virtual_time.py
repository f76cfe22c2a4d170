"""Move a virtual clock: by jumps, by jumps that wait for clients, or continuously.

In each case time stops at every instant at which something is due, until that has happened and is
visible. One caller moves it at a time. The scheduler knows what is due, `CatchUp` which clients
have to be waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from forewarn.core import Time
from forewarn.core.time import MAX_TIME, SECOND, Duration
from forewarn.service.engine.catch_up import DEFAULT_PATIENCE, CatchUp, Patience, Stopped
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.engine.ledger import Hung, Ledger
from forewarn.service.engine.scheduler import Scheduler
from forewarn.support import guard
from forewarn.support.logs import logger

TICK = 0.05  # seconds of guard time between two moves of a clock that runs continuously
MAX_RUNNING_SPEED = 86_400.0  # seconds of virtual time in one of guard time
MAX_LOOKS = 10  # steps in a row that only let the caller look, since something has changed
STOP_TIMEOUT = 1.0  # seconds of guard time that a stopping service waits for a move to end

log = logger("forewarn")


class VirtualTime:
    def __init__(
        self,
        clock: VirtualClock,
        scheduler: Scheduler,
        ledger: Ledger,
        catch_up: CatchUp,
        tasks: guard.Tasks,
    ) -> None:
        self.clock = clock
        self.catch_up = catch_up
        self.stop_before: tuple[Duration, ...] = ()  # for every caller; see `Patience`
        self._scheduler = scheduler
        self._ledger = ledger
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self._run: asyncio.Task[None] | None = None
        self._stopped = False
        self._speed = 0.0
        self._looked_at = 0  # commits by the end of the last step
        self._looks = 0

    @property
    def speed(self) -> float:
        """Seconds of virtual time in one of real time while it runs; 0 while it is stopped."""
        return self._speed if self._run is not None and not self._run.done() else 0.0

    async def advance(self, to: Time) -> None:
        """Jump, and return when everything that became due is done and visible.

        Time never goes back: an instant that has passed, because another caller has moved the
        clock further, is ignored.
        """
        async with self._turn:
            while not await self._step(to, None):
                pass

    async def play(self, to: Time, patience: Patience = DEFAULT_PATIENCE) -> None:
        """Jump, and at every visible change wait until the clients have seen it."""
        async with self._turn:
            while not await self._step(to, patience):
                pass

    async def step(self, to: Time, patience: Patience | None = None) -> bool:
        """Move to the next instant at which something is due, at most to `to`. True if `to` is
        reached. With `patience`, clients are waited for.

        Having waited for clients counts as a step of its own, since what they did about what they
        saw may be what the caller waits for. So does a change since the last step, which the caller
        may not have seen.
        """
        async with self._turn:
            return await self._step(to, patience, look=True)

    async def next_due(self) -> Time | None:
        """Return when something is due next, once everything that is under way has happened."""
        await self._ledger.idle()
        return self._scheduler.next_due()

    def next_moment(self, to: Time, watched: Callable[[str], bool]) -> Time | None:
        """Return where to stop on the way, so that clients see time pass; see `CatchUp`."""
        return self.catch_up.next_moment(self.clock.at, to, watched, self.stop_before)

    async def let_clients_catch_up(self, patience: Patience) -> None:
        """Wait for clients that poll by themselves until they have seen what is visible now."""
        async with self._turn:
            await self.catch_up.all_caught_up(patience, by_itself=True)

    async def resume(self, speed: float = 1.0) -> None:
        """Let the clock run continuously. It waits for clients, as `play` does."""
        if not 0 < speed <= MAX_RUNNING_SPEED:
            raise ValueError(
                f"the speed of a clock must be above 0 and at most {MAX_RUNNING_SPEED:g},"
                f" not {speed:g}"
            )
        before = self._halt()
        if not self._stopped:
            self._speed = speed
            self._run = self._tasks.start(self._run_continuously(speed), "clock")
        await _wait_for(before)

    async def pause(self) -> None:
        """Stop a clock that runs continuously."""
        await _wait_for(self._halt())

    def stop(self) -> None:
        """Make callers that wait for time to pass fail with `Stopped`."""
        self._stopped = True
        self.catch_up.stop()

    async def end(self) -> None:
        """Stop, and return when no move is under way any longer."""
        self.stop()
        await self.pause()
        with contextlib.suppress(TimeoutError):  # the move may be waiting for our caller
            async with asyncio.timeout(STOP_TIMEOUT), self._turn:
                pass

    def _halt(self) -> asyncio.Task[None] | None:
        run, self._run = self._run, None
        if run is not None:
            run.cancel()
        return run

    async def _step(self, to: Time, patience: Patience | None, *, look: bool = False) -> bool:
        waited = await self._settle(patience)
        if self._stopped:
            raise Stopped("the service is stopping")
        if waited or (look and self._changed()):
            return False
        at = self._scheduler.next_due()
        reached = at is None or at > to
        if at is None or reached:
            at = max(to, self.clock.at)
        elif at <= self.clock.at:
            raise Hung("a deadline has passed, but its action is not carried out")
        if patience is None:
            self.clock.set(at)
        else:
            caller = patience.caller
            patience = patience._replace(stop_before=(*patience.stop_before, *self.stop_before))
            stop = self.catch_up.next_moment(
                self.clock.at,
                at,
                lambda machine: self.catch_up.watches(machine, caller),
                patience.stop_before,
            )
            self.clock.set(at if stop is None else stop)
            if stop is not None:
                self.catch_up.show_time(stop, patience)
                reached = reached and stop == at
        await self._settle(patience)
        self._looked_at, self._looks = self.catch_up.commits, 0
        return reached

    async def _settle(self, patience: Patience | None) -> bool:
        """Wait until what is under way has happened and, with `patience`, clients have seen it."""
        if patience is not None:
            return await self.catch_up.all_caught_up(patience)
        await self._ledger.idle()
        return False

    def _changed(self) -> bool:
        """Return whether something has changed since the last step, unless every step finds that:
        then the caller itself changes something whenever it looks."""
        looked_at, self._looked_at = self._looked_at, self.catch_up.commits
        self._looks += 1
        return looked_at != self._looked_at and self._looks <= MAX_LOOKS

    async def _run_continuously(self, speed: float) -> None:
        """Move on every TICK. Time spent waiting for clients is not made up for."""
        try:
            while True:
                started = guard.monotonic()
                await guard.pause(TICK)
                passed = guard.monotonic() - started
                await self.play(min(MAX_TIME, self.clock.at + round(passed * speed * SECOND)))
        except Hung as hung:
            if not self._stopped:
                log.error("the virtual clock has stopped", why=str(hung))


async def _wait_for(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        await asyncio.wait([task])

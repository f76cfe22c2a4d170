"""Accepting the wall clock: the only way in which domain time can go back.

One commit records that an operator has accepted it, and corrects the times that were recorded by a
clock that was ahead (`core/retiming.py`). The store corrects those of events that are over, of the
history and of keys (`ClockAccepted`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from forewarn.core import Event, Refused, Time
from forewarn.core.refusal import conflict
from forewarn.core.registry import ClockAccepted, Put
from forewarn.core.retiming import Correction, announced_after
from forewarn.service.engine.clock import Clock, RealClock
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Batch, Entry, States, Store, StoreFailed
from forewarn.support.logs import logger
from forewarn.support.text import listing

TRUSTED = "the wall clock is already trusted; there is nothing to accept"

log = logger("forewarn")


class AcceptedClock(msgspec.Struct, frozen=True):
    before: Time  # the service's time until then
    now: Time
    announced: tuple[Event, ...] = ()  # announced by the wrong clock; they keep their NotBefore

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.announced:
            return ()
        ids = listing([event.id for event in self.announced])
        return (
            "these events were announced while the clock was ahead and keep the NotBefore that"
            f" guests were shown: {ids}. Cancel them and announce them again, or have them"
            " approved",
        )


class ClockAcceptance:
    def __init__(self, store: Store, writer: Writer, clock: Clock, poll_index: PollIndex) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._poll_index = poll_index

    async def accept(self, by: str) -> AcceptedClock | Refused:
        """Follow the wall clock from here on. Raises StoreFailed; nothing has changed then."""
        clock = self._clock
        if not isinstance(clock, RealClock):
            return conflict("this service runs on virtual time; there is no wall clock to accept")
        if self._writer.now().untrusted is None:
            return conflict(TRUSTED)
        # First sights are dated when they are noticed, but stored only from time to time.
        await self._poll_index.save(self._writer.now())
        results: list[AcceptedClock] = []
        undo: list[Callable[[], None]] = []

        def work(states: States) -> Batch:
            now = self._writer.now()
            if now.untrusted is None:  # somebody else has accepted it meanwhile
                return Batch(now.at, now.lost)
            before = now.at
            undo.append(clock.accept())
            now = self._writer.now()
            results.append(AcceptedClock(before, now.at, announced_after(states.values(), now.at)))
            entries: list[Entry] = []
            puts: list[Put] = [ClockAccepted(before, by)]
            if before > now.at:
                correction = Correction(now.at, before - now.at)
                changes = {name: correction.group(group) for name, group in states.items()}
                entries = [Entry(name, items) for name, items in changes.items() if items]
                puts += correction.registry(states.registry, by)
            return Batch(now.at, now.lost, tuple(entries), tuple(puts))

        try:
            await self._store.transact(work)
        except StoreFailed:
            for revert in undo:
                revert()
            raise
        if not results:
            return conflict(TRUSTED)
        accepted = results[-1]
        log.warning(
            "an operator has accepted the wall clock",
            by=by,
            seconds=(accepted.now - accepted.before) / 1e6,
        )
        return accepted

"""Faults of events: one that is Started without having been Scheduled, one that vanishes, one with
hardly any notice; and a group whose document starts over.

All of them by the ordinary commands, at the one place where events are announced
(`Platform.announce_all`); who asked, and which fault it was, stands in the history. An event that
is not announced at all, or starts at once anyway, is left alone, and so is one that goes together
with those of other groups, but that it may vanish with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from forewarn.core import Changes, Event, Group, Now, Refused, apply, decide
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.core.time import SECOND
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.service.faults.kinds import Kind
from forewarn.service.faults.model import Fault
from forewarn.service.faults.registry import Faults
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Store
from forewarn.support.logs import logger

log = logger("forewarn")

ALONE = frozenset({Kind.SUDDEN, Kind.SHORT_NOTICE})  # not for what goes together with others


class FaultedEvent:
    """What is announced instead, and what whoever asked should know of it."""

    def __init__(self, commands: Sequence[tuple[str, c.Command]]) -> None:
        self.commands = commands
        self.notes: list[str] = []
        self.met: list[tuple[Fault, Event]] = []
        self.stands = False  # it has been announced


class EventFaults:
    def __init__(
        self,
        faults: Faults,
        store: Store,
        writer: Writer,
        scheduler: Scheduler,
        poll_index: PollIndex,
    ) -> None:
        self._faults = faults
        self._store = store
        self._writer = writer
        self._scheduler = scheduler
        self._poll_index = poll_index
        self._until_seen: dict[str, tuple[Fault, str]] = {}  # by event: and its group
        self._cancel: Callable[[str, str, str], Awaitable[Any]] | None = None

    def by_way_of(self, cancel: Callable[[str, str, str], Awaitable[Any]]) -> None:
        """How an event is withdrawn: which, by whom, why."""
        self._cancel = cancel

    @contextmanager
    def bending(self, commands: Sequence[tuple[str, c.Command]]) -> Iterator[FaultedEvent]:
        """The commands, with those changed that a fault meets. If they are not carried out, it
        has met nobody."""
        bent = FaultedEvent(commands)
        if self._faults.meets_events:
            self._bend(bent, self._writer.now())
        try:
            yield bent
        finally:
            for fault, event in bent.met:
                if not bent.stands:
                    self._faults.give_back(fault, event.resources)
                elif fault.kind is Kind.VANISH:
                    self._let_vanish(fault, event)

    def _bend(self, bent: FaultedEvent, now: Now) -> None:
        states: dict[str, Group] = {}
        planned: list[tuple[str, c.Command]] = []
        for name, command in bent.commands:
            group = states.get(name) or self._store.groups[name]
            expected = decide(group, command, now)
            if isinstance(expected, Refused):
                return  # and so will all of it be
            instead = self._instead(bent, group, expected, now) or [command]
            for one in instead:
                done = decide(group, one, now)
                if isinstance(done, Refused):
                    break
                group = apply(group, done.items)
            states[name] = group
            planned += [(name, one) for one in instead]
        bent.commands = planned

    def _instead(
        self, bent: FaultedEvent, group: Group, expected: Changes, now: Now
    ) -> list[c.Command] | None:
        event = _raised(expected)
        if event is None:
            return None

        def suits(kind: Kind) -> bool:
            return event.joint is None or kind not in ALONE

        fault = self._faults.for_event(event.resources, group.name, suits)
        if fault is None:
            return None
        instead = _commands(fault, event)
        if instead and isinstance(decide(group, instead[0], now), Refused):
            self._faults.give_back(fault, event.resources)
            return None
        bent.met.append((fault, event))
        bent.notes.append(f"fault {fault.id} ({fault.kind.value}): {fault.nature.says}")
        return instead

    def _let_vanish(self, fault: Fault, event: Event) -> None:
        if fault.seconds is None:
            self._until_seen[event.id] = fault, event.group
            self._faults.look_again()
            return
        at = self._writer.now().at + round(fault.seconds * SECOND)

        async def vanish() -> None:
            await self._withdraw(fault, event.id)

        self._scheduler.alarm(f"fault/{fault.id}/{event.id}", at, vanish)

    async def _withdraw(self, fault: Fault, event: str) -> None:
        if not self._faults.known(fault.id) or self._cancel is None:
            return  # it has been cleared meanwhile
        done = await self._cancel(event, f"fault {fault.id}", fault.kind.value)
        if isinstance(done, Refused):
            log.info("an event did not vanish", fault=fault.id, id=event, why=done.says)

    # For those who answer.

    @property
    def watched(self) -> set[str]:
        """Groups with an event that vanishes as soon as one of their machines has seen it."""
        return {group for _, group in self._until_seen.values()}

    async def shown(self, machine: str, group: str) -> bool:
        """A machine may have been shown its group's document. Is less watched since?"""
        before = len(self._until_seen)
        for id, (fault, place) in list(self._until_seen.items()):
            if place == group and self._poll_index.first_sights(id, (machine,)):
                self._until_seen.pop(id, None)
                await self._withdraw(fault, id)
            elif (found := self._store.groups.get(place)) is None or found.event(id) is None:
                self._until_seen.pop(id, None)  # it is over without our help
        return len(self._until_seen) < before

    async def start_over(self, fault: Fault, group: str) -> None:
        """Its next document is the first again."""
        await self._writer.submit(group, c.Disable(by=f"fault {fault.id}"))


def _raised(expected: Changes) -> Event | None:
    """The event that is announced by it, if one is, to wait for its time."""
    for item in expected.items:
        if isinstance(item, EventMoved) and item.what is Move.RAISE:
            event = item.event
            return None if event.silent or event.approved else event
    return None


def _commands(fault: Fault, event: Event) -> list[c.Command] | None:
    """What is said instead; None: the same as before."""
    by = f"{event.by} (fault {fault.id})"
    raised = c.Raise(
        id=event.id,
        type=event.type,
        machines=event.resources,
        by=by,
        source=event.source,
        not_before=event.not_before,
        short_notice=True,
        description=event.description,
        duration=event.duration,
        cause=event.cause,
        host=event.host,
        span=event.span,
        moves=event.moves,
    )
    if fault.kind is Kind.SHORT_NOTICE:
        notice = round((fault.seconds or 0) * SECOND)
        return [msgspec.structs.replace(raised, not_before=None, notice=notice)]
    if fault.kind is Kind.SUDDEN and event.promise.deletes:
        return [raised, c.OperatorApprove(id=event.id, by=f"fault {fault.id}")]
    if fault.kind is Kind.SUDDEN:
        strike = c.Fail(
            id=event.id,
            type=event.type,
            machines=event.resources,
            by=by,
            cause=event.cause,
            host=event.host,
        )
        said = event.description
        return [msgspec.structs.replace(strike, description=said) if said else strike]
    return None

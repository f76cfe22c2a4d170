"""Faults of events: an event that starts without having been Scheduled, one that vanishes, one with
hardly any notice; and a group whose incarnation starts again.

All of them use the ordinary commands, at the one place where events are announced
(`Platform.announce_all`); the history names the caller and the fault. Events that are not
announced, or start at once, meet no fault; events that start together with those of other groups
can only vanish, with all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from forewarn.core import Changes, Event, Group, Refused, World, apply, decide
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.core.time import SECOND
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.service.faults.kinds import FaultKind
from forewarn.service.faults.model import Fault
from forewarn.service.faults.registry import Faults
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Store
from forewarn.support.logs import logger

log = logger("forewarn")

# Not for events of several groups.
SINGLE_GROUP_ONLY = frozenset({FaultKind.SUDDEN, FaultKind.SHORT_NOTICE})


class FaultedCommands:
    """The commands that are submitted instead, and notes about it for the caller."""

    def __init__(self, commands: Sequence[tuple[str, c.Command]]) -> None:
        self.commands = commands
        self.notes: list[str] = []
        self.applied: list[tuple[Fault, Event]] = []
        self.announced = False


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
        self._until_seen: dict[str, tuple[Fault, str]] = {}  # by event id: the fault, and the group
        self._cancel: Callable[[str, str, str], Awaitable[Any]] | None = None

    def cancel_with(self, cancel: Callable[[str, str, str], Awaitable[Any]]) -> None:
        """Set how an event is cancelled: its id, by whom, why."""
        self._cancel = cancel

    @contextmanager
    def applied_to(self, commands: Sequence[tuple[str, c.Command]]) -> Iterator[FaultedCommands]:
        """Yield the commands, changed where a fault meets their event. Unless the caller sets
        `announced`, the faults count as not consumed."""
        faulted = FaultedCommands(commands)
        if self._faults.meets_events:
            self._apply(faulted, self._writer.now())
        try:
            yield faulted
        finally:
            for fault, event in faulted.applied:
                if not faulted.announced:
                    self._faults.give_back(fault, event.resources)
                elif fault.kind is FaultKind.VANISH:
                    self._vanish(fault, event)

    def _apply(self, faulted: FaultedCommands, now: World) -> None:
        states: dict[str, Group] = {}
        planned: list[tuple[str, c.Command]] = []
        for name, command in faulted.commands:
            group = states.get(name) or self._store.groups[name]
            expected = decide(group, command, now)
            if isinstance(expected, Refused):
                return  # the whole announcement will be refused
            instead = self._instead(faulted, group, expected, now) or [command]
            for replacement in instead:
                decision = decide(group, replacement, now)
                if isinstance(decision, Refused):
                    break
                group = apply(group, decision.items)
            states[name] = group
            planned += [(name, replacement) for replacement in instead]
        faulted.commands = planned

    def _instead(
        self, faulted: FaultedCommands, group: Group, expected: Changes, now: World
    ) -> list[c.Command] | None:
        event = _raised(expected)
        if event is None:
            return None

        def suits(kind: FaultKind) -> bool:
            return event.joint is None or kind not in SINGLE_GROUP_ONLY

        fault = self._faults.for_event(event.resources, group.name, suits)
        if fault is None:
            return None
        instead = _commands(fault, event)
        if instead and isinstance(decide(group, instead[0], now), Refused):
            self._faults.give_back(fault, event.resources)
            return None
        faulted.applied.append((fault, event))
        faulted.notes.append(f"fault {fault.id} ({fault.kind.value}): {fault.traits.description}")
        return instead

    def _vanish(self, fault: Fault, event: Event) -> None:
        if fault.seconds is None:
            self._until_seen[event.id] = fault, event.group
            self._faults.notify()
            return
        at = self._writer.now().at + round(fault.seconds * SECOND)

        async def vanish() -> None:
            await self._withdraw(fault, event.id)

        self._scheduler.alarm(f"fault/{fault.id}/{event.id}", at, vanish)

    async def _withdraw(self, fault: Fault, event: str) -> None:
        if not self._faults.known(fault.id) or self._cancel is None:
            return  # the fault was cleared meanwhile
        done = await self._cancel(event, f"fault {fault.id}", fault.kind.value)
        if isinstance(done, Refused):
            log.info(
                "a fault could not withdraw its event",
                fault=fault.id,
                event_id=event,
                why=done.message,
            )

    # For the metadata endpoint.

    @property
    def watched(self) -> set[str]:
        """Groups with an event that vanishes as soon as one of their machines has seen it."""
        return {group for _, group in self._until_seen.values()}

    async def shown(self, machine: str, group: str) -> bool:
        """Withdraw the events that a machine has just been shown. True if fewer are watched now."""
        before = len(self._until_seen)
        for id, (fault, name) in list(self._until_seen.items()):
            if name == group and self._poll_index.first_sights(id, (machine,)):
                self._until_seen.pop(id, None)
                await self._withdraw(fault, id)
            elif (state := self._store.groups.get(name)) is None or state.event(id) is None:
                self._until_seen.pop(id, None)  # it is over already
        return len(self._until_seen) < before

    async def start_over(self, fault: Fault, group: str) -> None:
        """Disable the group, so that its next document is number 1 again."""
        await self._writer.submit(group, c.Disable(by=f"fault {fault.id}"))


def _raised(expected: Changes) -> Event | None:
    """Return the event that is announced and waits for its NotBefore, if there is one."""
    for item in expected.items:
        if isinstance(item, EventMoved) and item.what is Move.RAISE:
            event = item.event
            return None if event.unannounced or event.approved else event
    return None


def _commands(fault: Fault, event: Event) -> list[c.Command] | None:
    """Return the commands that take the place of the announcement; None to leave it as it is."""
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
        ignore_windows=event.ignore_windows,
        moves=event.moves,
    )
    if fault.kind is FaultKind.SHORT_NOTICE:
        notice = round((fault.seconds or 0) * SECOND)
        return [msgspec.structs.replace(raised, not_before=None, notice=notice)]
    if fault.kind is FaultKind.SUDDEN and event.traits.deletes:
        return [raised, c.OperatorApprove(id=event.id, by=f"fault {fault.id}")]
    if fault.kind is FaultKind.SUDDEN:
        failure = c.Fail(
            id=event.id,
            type=event.type,
            machines=event.resources,
            by=by,
            cause=event.cause,
            host=event.host,
        )
        if event.description:
            failure = msgspec.structs.replace(failure, description=event.description)
        return [failure]
    return None

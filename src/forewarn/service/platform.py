"""The operators' verbs, and the guests': everything that can be asked of a running service.

Finds the group a request is about and hands it a command. The faces translate what comes back;
they decide nothing, and neither does this.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import (
    Changes,
    Event,
    EventType,
    Group,
    Machine,
    Refused,
    Source,
    Status,
    decide,
    why,
)
from forewarn.core import commands as c
from forewarn.core.changes import EventMoved
from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.holds import Hold
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.time import Duration, Time
from forewarn.core.words import listing
from forewarn.service.carrier import Carrier
from forewarn.service.feed import Feed
from forewarn.service.inventory import Inventory
from forewarn.service.witness import Witness
from forewarn.service.writer import Writer
from forewarn.store.port import Store


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event stands, what it waits for, and who could move it."""

    event: Event
    holds: tuple[Hold, ...]
    says: str
    seen_by: dict[str, Time]  # machines that were shown it, and when first


class Outcome(msgspec.Struct, frozen=True):
    """What a verb brought about: the event it is about, and what the caller should know."""

    event: Event
    notes: tuple[str, ...] = ()


def new_id() -> str:
    return str(uuid.uuid4()).upper()


class Platform:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        carrier: Carrier,
        feed: Feed,
        witness: Witness,
        inventory: Inventory,
        new_id: Callable[[], str] = new_id,
    ) -> None:
        self._store = store
        self._carrier = carrier
        self._feed = feed
        self._new_id = new_id
        self.writer = writer
        self.witness = witness
        self.inventory = inventory

    # For guests.

    async def enable(self, group: str) -> None:
        """A machine of the group asks for the document: returns once there is one."""
        while True:
            await self.writer.submit(group, c.Enable())
            if self._store.groups[group].enabled:
                return
            await self._feed.changed(group)

    async def approve_as(self, machine: str, group: str, ids: Sequence[str]) -> Changes | Refused:
        return await self.writer.approve(group, ids, by=machine)

    # For operators.

    async def schedule(
        self,
        *,
        type: EventType,
        machines: tuple[str, ...],
        by: str,
        source: Source = Source.PLATFORM,
        notice: Duration | None = None,
        not_before: Time | None = None,
        short_notice: bool = False,
        description: str = "",
        duration: int = UNKNOWN_DURATION,
    ) -> Outcome | Refused:
        group = self._one_group(machines)
        if isinstance(group, Refused):
            return group
        command = c.Raise(
            id=self._new_id(),
            type=type,
            machines=machines,
            by=by,
            source=source,
            notice=notice,
            not_before=not_before,
            short_notice=short_notice,
            description=description,
            duration=duration,
        )
        return await self._announce(group, command)

    async def maintain(self, machine: str, type: EventType, by: str) -> Outcome | Refused:
        group = self._one_group((machine,))
        if isinstance(group, Refused):
            return group
        command = c.Maintain(id=self._new_id(), type=type, machine=machine, by=by)
        return await self._announce(group, command)

    async def restore(self, machine: str, by: str) -> Machine | Refused:
        group = self._one_group((machine,))
        if isinstance(group, Refused):
            return group
        done = await self.writer.submit(group.name, c.Restore(machine=machine, by=by))
        found = self.inventory.machine(machine)
        return done if isinstance(done, Refused) else found[1] if found else unknown(machine)

    async def approve(self, id: str, by: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Overrule(id=id, by=by))

    async def cancel(self, id: str, by: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Cancel(id=id, by=by))

    async def retry(self, id: str, by: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Retry(id=id, by=by))

    async def finish(self, id: str, by: str, reason: str) -> Outcome | Refused:
        return await self._on_event(id, lambda id: c.Finish(id=id, by=by, reason=reason))

    async def disable(self, name: str, by: str) -> Changes | Refused:
        group = self.inventory.group(name)
        if group is None:
            return unknown(self.inventory.unknown_group(name))
        return await self.writer.submit(name, c.Disable(by=by))

    # Looking.

    def active(self) -> list[Event]:
        return [event for group in self._store.groups.values() for event in group.events]

    async def past(self, group: str | None, limit: int) -> Sequence[Event]:
        return await self._store.past(group=group, limit=limit)

    async def event(self, id: str) -> Event | Refused:
        """By its id, or by the beginning of one, if that says which."""
        wanted = id.strip().upper()
        if not wanted:
            return invalid("give the id of an event, or its first characters")
        found = [event for event in self.active() if event.id.startswith(wanted)]
        if not found:
            found = list((await self._store.records([wanted])).values())
        if not found:
            past = await self._store.past(limit=1_000)
            found = [event for event in past if event.id.startswith(wanted)]
        if not found:
            active = listing([event.id for event in self.active()])
            return unknown(f"no event '{id}'; active are {active}")
        if len(found) > 1:
            return invalid(f"'{id}' could be {listing([event.id for event in found])}")
        return found[0]

    async def explain(self, id: str) -> Explanation | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        group = self._store.groups[event.group]
        holds = why(group, event.id, self.writer.now()) if not event.status.over else ()
        return Explanation(
            event=event,
            holds=holds,
            says=_says(event, holds),
            seen_by=self.witness.first_sights(event.id, [m.name for m in group.machines]),
        )

    async def _announce(self, group: Group, command: c.Raise | c.Maintain) -> Outcome | Refused:
        """Would it be allowed at all? Then the driver is asked, and only then is it announced."""
        expected = decide(group, command, self.writer.now())
        if isinstance(expected, Refused):
            return expected
        for item in expected.items:
            match item:
                case EventMoved(what=Move.RAISE, event=event):
                    if veto := await self._carrier.veto(event):
                        return conflict(f"the driver would not carry it out: {veto}")
        return await self._submit(group.name, command)

    async def _on_event(self, id: str, command: Callable[[str], c.Command]) -> Outcome | Refused:
        event = await self.event(id)
        if isinstance(event, Refused):
            return event
        if event.status.over:
            return conflict(f"event {event.id} is over ({event.ending or event.status.value})")
        return await self._submit(event.group, command(event.id))

    async def _submit(self, group: str, command: c.Command) -> Outcome | Refused:
        decision = await self.writer.submit(group, command)
        if isinstance(decision, Refused):
            return decision
        event = self._store.groups[group].event(decision.event)
        if event is None:
            records = await self._store.records([decision.event])
            if decision.event not in records:
                return unknown(f"no event {decision.event}")
            event = records[decision.event]
        return Outcome(event, decision.notes)

    def _one_group(self, machines: tuple[str, ...]) -> Group | Refused:
        """The group that all these machines are in."""
        found: dict[str, str] = {}
        for name in machines:
            group = self.inventory.group_of(name)
            if group is None:
                return unknown(self.inventory.unknown_machine(name))
            found.setdefault(group, name)
        if not found:
            return invalid("name at least one machine")
        if len(found) > 1:
            places = listing([f"'{name}' is in '{group}'" for group, name in found.items()])
            return invalid(
                f"an event's machines are of one group; {places}: schedule one event for each group"
            )
        return self._store.groups[next(iter(found))]


def _says(event: Event, holds: tuple[Hold, ...]) -> str:
    match event.status:
        case Status.FINISHED | Status.WITHDRAWN:
            return f"it is over: {event.ending or event.status.value.lower()}"
        case Status.STARTED:
            attempt = event.attempt
            if attempt is None or attempt.open:
                return "it has started; the driver is at work"
            if attempt.stuck:
                return f"it has started, but whether it happened is not known: {attempt.note}"
            if attempt.note:
                return f"it has started; attempt {attempt.number} failed: {attempt.note}"
            return "it has started; the driver will look again whether it is done"
    if not holds:
        return "nothing holds it: it starts now"
    head = "approved, but waiting" if event.approved else "waiting"
    return f"{head}: {'; '.join(hold.says for hold in holds)}"

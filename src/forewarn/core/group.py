"""The group: the unit of decisions, with its machines and events, and what guests see of it.

One group has one document. `view` contains everything that guests can see; the events of two views
of an enabled group differ exactly if their incarnations differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from forewarn.core.events import Event, EventType, Source, Status
from forewarn.core.fleet import GroupKind, Machine, Place, Policy
from forewarn.core.time import Duration, Time

T = TypeVar("T")


class Group(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: GroupKind = GroupKind.STANDALONE
    machines: tuple[Machine, ...] = ()
    events: tuple[Event, ...] = ()  # those that are not over, in the order of raising
    policy: Policy = Policy()
    place: Place = Place()
    labels: dict[str, str] = {}
    enabled: bool = False
    enabling_until: Time | None = None  # a guest has asked; the group is enabled at this time
    incarnation: int = 0  # of the current document; 0 while there is none
    shown: int = 0  # highest incarnation of an earlier document, under this name
    # It had no machines in between, or was restored: its numbers continue above `shown`.
    renewed: bool = False
    seen: Duration = 0  # time of the last recorded GET, in time served

    def machine(self, name: str) -> Machine | None:
        for machine in self.machines:
            if machine.name == name:
                return machine
        return None

    def named(self, names: Iterable[str]) -> dict[str, Machine]:
        """Return those of the named machines that are in the group, in one pass over it."""
        wanted = frozenset(names)
        if len(wanted) == 1:  # as of most events
            machine = self.machine(*wanted)
            return {} if machine is None else {machine.name: machine}
        return {machine.name: machine for machine in self.machines if machine.name in wanted}

    def event(self, id: str) -> Event | None:
        for event in self.events:
            if event.id == id:
                return event
        return None

    def lacks_approval(self, event: Event) -> bool:
        """Could machines of the group approve an event, and none has? While the group is not
        enabled, it is not asked."""
        return self.enabled and event.status is Status.SCHEDULED and event.approved is None

    @property
    def alive(self) -> frozenset[str]:
        """The names of the machines that have not been evicted or deleted."""
        return frozenset([machine.name for machine in self.machines if not machine.gone])

    @property
    def staying(self) -> list[Machine]:
        """The machines that exist, without those that an event is going to delete."""
        leaving = {
            name for event in self.events if event.traits.deletes for name in event.resources
        }
        return [
            machine for machine in self.machines if machine.name not in leaving and not machine.gone
        ]

    def away(self, event: Event) -> frozenset[str]:
        """Return the resources of an event that have moved away and not come back to its host."""
        if not event.left or not event.host:
            return frozenset(event.left)
        machines = self.named(event.left)
        back = {name for name, machine in machines.items() if machine.host == event.host}
        return frozenset(event.left) - back

    def concerned(self, event: Event) -> list[Machine]:
        """Return those machines of an event that are alive and have not moved away."""
        machines = self.named(event.resources)
        away = self.away(event)
        stayed = (machines.get(name) for name in event.resources if name not in away)
        return [machine for machine in stayed if machine is not None and machine.alive]


def replaced(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the machines or events of a group that are no longer the same, and those in place of
    them. Of many machines, usually one is replaced where it was."""
    gone, come = list(before), list(after)
    if len(before) == len(after):
        pairs = [pair for pair in zip(before, after, strict=True) if pair[0] is not pair[1]]
        gone, come = [old for old, _ in pairs], [new for _, new in pairs]
    if not gone or not come or len(gone) == len(come) == 1:
        return gone, come
    same = {id(item) for item in gone} & {id(item) for item in come}
    return (
        [item for item in gone if id(item) not in same],
        [item for item in come if id(item) not in same],
    )


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: EventType
    status: Status
    resources: tuple[str, ...]
    not_before: Time | None  # None once Started
    description: str
    source: Source
    duration: int


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: GroupKind
    enabled: bool
    incarnation: int
    events: tuple[EventView, ...]


def view(group: Group) -> GroupView:
    """Return what guests see of the group."""
    shown = [event for event in group.events if not event.unannounced] if group.enabled else []
    return GroupView(
        name=group.name,
        kind=group.kind,
        enabled=group.enabled,
        incarnation=group.incarnation,
        events=tuple(
            EventView(
                id=event.id,
                type=event.type,
                status=event.status,
                resources=event.resources,
                not_before=event.not_before if event.status is Status.SCHEDULED else None,
                description=event.description,
                source=event.source,
                duration=event.duration,
            )
            for event in shown
        ),
    )

"""What holds an event back. The same predicates decide and explain.

`settle` starts everything that nothing holds; `why` says what holds the rest. An event may be
held by its notice, by the pause after an outage, by a machine that is busy with another event,
by its group's domain slot, by the other deletes it is coupled with, by a window that is not
open, or by the other groups that its host is shared with (which is `joint.py`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from forewarn.core.changes import Change, EventMoved, apply
from forewarn.core.events import Approval, Attempt, Event, EventType, Source, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.time import Now, Time
from forewarn.core.words import listing

NAMED_AT_MOST = 10  # other deletes that a waiting one names


class HoldKind(enum.Enum):
    NOTICE = "notice"
    GRACE = "grace"
    MACHINE = "machine"
    DOMAIN = "domain"
    COUPLING = "coupling"
    WINDOW = "window"
    JOINT = "joint"
    DRIVER = "driver"  # it has started, and is being carried out


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    kind: HoldKind
    says: str
    since: Time
    until: Time | None = None  # at the latest; None: no time is set
    waits_for: tuple[str, ...] = ()  # ids of other events
    movers: str = ""  # who could move it


def ripe_at(event: Event, now: Now) -> Time:
    """When the event may start unapproved: at NotBefore, or once the endpoint has served for a
    while again after an outage."""
    grace = now.grace_ends
    return event.not_before if grace is None else max(event.not_before, grace)


def ripe(event: Event, now: Now) -> bool:
    return now.at >= ripe_at(event, now)


class Floor:
    """Who occupies what: the Started events of a group, by machine and by update domain."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_machine: dict[str, dict[str, Event]] = {}
        self._by_domain: dict[int, dict[str, Event]] = {}
        for event in events:
            if event.status is Status.STARTED:
                self.enter(event)

    def enter(self, event: Event) -> None:
        self._by_domain.setdefault(event.domain, {})[event.id] = event
        for name in event.resources:
            self._by_machine.setdefault(name, {})[event.id] = event

    def leave(self, event: Event) -> None:
        self._by_domain.get(event.domain, {}).pop(event.id, None)
        for name in event.resources:
            self._by_machine.get(name, {}).pop(event.id, None)

    def on_machines(self, names: Iterable[str]) -> dict[str, Event]:
        return {id: event for name in names for id, event in self._by_machine.get(name, {}).items()}

    def in_other_domains(self, domain: int) -> dict[str, Event]:
        return {
            id: event
            for other, events in self._by_domain.items()
            if other != domain
            for id, event in events.items()
        }


def open_deletes(events: Iterable[Event], now: Now) -> list[Event]:
    """Deletes that wait for their notice, the earliest first: approved ones wait for these."""
    waiting = [
        event
        for event in events
        if event.type is EventType.TERMINATE
        and event.status is Status.SCHEDULED
        and event.approved is None
        and not ripe(event, now)
    ]
    return sorted(waiting, key=lambda event: event.not_before)


def outside(event: Event, now: Now) -> list[Hold]:
    """The window it may start in is not open: approved or not, it waits."""
    span = event.span
    if span is None or (span.opens <= now.at and (span.closes is None or now.at < span.closes)):
        return []
    early = now.at < span.opens
    return [
        Hold(
            kind=HoldKind.WINDOW,
            says="its window has not opened" if early else "its window has closed",
            since=event.raised_at if early else span.closes or span.opens,
            until=span.opens if early else None,
            movers="nobody before the window opens" if early else "whoever planned it, anew",
        )
    ]


def timely(event: Event, now: Now, deletes: Sequence[Event]) -> list[Hold]:
    """Holds that time or an approval lifts. `deletes` are the group's `open_deletes`."""
    if event.joint is not None:
        return [
            Hold(
                kind=HoldKind.JOINT,
                says="it starts together with the events of the other groups on its host",
                since=event.raised_at,
                movers=f"a machine of each group: {listing(event.joint.groups)}",
            )
        ]
    return [*outside(event, now), *_unripe(event, now, deletes)]


def _unripe(event: Event, now: Now, deletes: Sequence[Event]) -> list[Hold]:
    if ripe(event, now):
        return []
    if event.approved is None:
        found = []
        if now.at < event.not_before:
            found.append(
                Hold(
                    kind=HoldKind.NOTICE,
                    says="its notice has not passed and nobody has approved it",
                    since=event.raised_at,
                    until=event.not_before,
                    movers=f"any machine of group '{event.group}', or an operator, by approving it",
                )
            )
        if now.grace_ends is not None and now.at < now.grace_ends:
            found.append(
                Hold(
                    kind=HoldKind.GRACE,
                    says="the endpoint was away or its clock was stepped; nothing starts by its"
                    " NotBefore until guests have had time to ask again",
                    since=now.steady_since or 0,
                    until=now.grace_ends,
                    movers=f"any machine of group '{event.group}', or an operator, by approving it",
                )
            )
        return found
    if event.type is not EventType.TERMINATE:
        return []
    coupled = tuple(
        other.id for other in deletes[:NAMED_AT_MOST] if other.not_before <= event.not_before
    )
    if not coupled:
        return []
    return [
        Hold(
            kind=HoldKind.COUPLING,
            says="approved, but deletes of a group that are due no later go first or together",
            since=event.approved.at,
            until=ripe_at(event, now),
            waits_for=coupled,
            movers=f"any machine of group '{event.group}', by approving those as well",
        )
    ]


def occupied(event: Event, floor: Floor) -> list[Hold]:
    """Holds that only the end of another event lifts."""
    found = []
    if event.waits:
        busy = floor.on_machines(event.resources)
        busy.pop(event.id, None)
        if busy:
            found.append(
                Hold(
                    kind=HoldKind.MACHINE,
                    says="one of its machines is in another event that has started",
                    since=max(event.raised_at, _latest_start(busy.values())),
                    waits_for=tuple(busy),
                    movers="the driver that is carrying that event out",
                )
            )
    if event.waits_for_domain:
        others = floor.in_other_domains(event.domain)
        if others:
            domains = ", ".join(str(d) for d in sorted({e.domain for e in others.values()}))
            found.append(
                Hold(
                    kind=HoldKind.DOMAIN,
                    says=f"it is in update domain {event.domain}, and domain {domains} of the"
                    " group is being disturbed; one domain at a time",
                    since=max(event.raised_at, _latest_start(others.values())),
                    waits_for=tuple(others),
                    movers="the drivers that are carrying those events out",
                )
            )
    return found


def settle(group: Group, now: Now) -> tuple[Change, ...]:
    """Start whatever nothing holds, in the order of raising."""
    items: list[Change] = list(_nobody_to_ask(group, now))
    group = apply(group, tuple(items)) if items else group
    floor = Floor(group.events)
    present = {event.id: event for event in group.events}
    freed = True
    while freed:  # a start may end what held another event; then look once more
        freed = False
        deletes = open_deletes(present.values(), now)
        for event in list(present.values()):
            if event.id not in present or event.status is not Status.SCHEDULED:
                continue
            if timely(event, now, deletes) or occupied(event, floor):
                continue
            began = started(event, now)
            items.append(EventMoved(Move.START, began))
            present[event.id] = began
            floor.enter(began)
            if event.promise.deletes:
                for other in [e for e in present.values() if moot_beside(event, e)]:
                    items.append(ended(other, now, f"its machine is being deleted by {event.id}"))
                    floor.leave(other)
                    del present[other.id]
                    freed = True
    return tuple(items)


def _nobody_to_ask(group: Group, now: Now) -> Iterable[Change]:
    """Users' events that are approved because all machines are down, if that is the policy."""
    if not group.policy.all_instances_down:
        return
    down = {
        name
        for event in group.events
        if event.status is Status.STARTED and event.type is not EventType.FREEZE
        for name in event.resources
    }
    if not group.alive or not group.alive <= down:
        return
    for event in group.events:
        if (
            event.source is Source.USER
            and event.status is Status.SCHEDULED
            and event.approved is None
        ):
            approval = Approval("policy: all machines are down", now.at)
            yield EventMoved(Move.APPROVE, move(event, Move.APPROVE, approved=approval))


def why(group: Group, id: str, now: Now) -> tuple[Hold, ...]:
    """What a Scheduled event waits for: empty exactly when a Tick would start it.

    Asked of the group as it would stand after a Tick, so that of two events that could start
    but not both, the second names the first.
    """
    items = settle(group, now)
    for item in items:
        if isinstance(item, EventMoved) and item.event.id == id and item.what is Move.WITHDRAW:
            return (
                Hold(
                    kind=HoldKind.MACHINE,
                    says=item.event.ending,
                    since=now.at,
                    movers="nobody: it will be withdrawn",
                ),
            )
    after = apply(group, items)
    event = after.event(id)
    if event is None or event.status is not Status.SCHEDULED:
        return ()
    deletes = open_deletes(after.events, now)
    return (*timely(event, now, deletes), *occupied(event, Floor(after.events)))


def started(event: Event, now: Now) -> Event:
    """The first attempt is on record with the start itself: a driver is asked right after."""
    return move(event, Move.START, started_at=now.at, attempt=Attempt(number=1, at=now.at))


def ended(event: Event, now: Now, ending: str, by: str = "") -> EventMoved:
    """An event that has become pointless: withdrawn, or finished if it had begun."""
    what = Move.WITHDRAW if event.status is Status.SCHEDULED else Move.FINISH
    return EventMoved(what, move(event, what, ended_at=now.at, ending=ending), by)


def bound(event: Event) -> bool:
    """Is it under way together with others, so that it ends only with them?"""
    return event.joint is not None and event.status is Status.STARTED


def moot_beside(delete: Event, other: Event) -> bool:
    if bound(other) or other.id == delete.id:
        return False
    return set(other.resources) <= set(delete.resources)


def _latest_start(events: Iterable[Event]) -> Time:
    return max(event.started_at or event.raised_at for event in events)

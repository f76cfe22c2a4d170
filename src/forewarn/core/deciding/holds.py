"""What holds an event back. The same predicates decide (`start.py`) and explain.

An event may be held by its notice, by the pause after an outage or a restore, by a machine that is
busy with another event, by its group's domain slot, by the other deletes it is coupled with, by a
window that is not open, by the other groups that its host is shared with (which is `joint.py`), or
by a wall clock that cannot be trusted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from forewarn.core.events import Event, Status
from forewarn.core.time import Now, Time
from forewarn.support.text import listing

NEVER: Time = -1  # before every NotBefore
NAMED_AT_MOST = 10  # other deletes that a waiting one names


class HoldKind(enum.Enum):
    NOTICE = "notice"
    GRACE = "grace"
    RESTORED = "restored"
    MACHINE = "machine"
    DOMAIN = "domain"
    COUPLING = "coupling"
    WINDOW = "window"
    JOINT = "joint"
    CLOCK = "clock"  # the wall clock contradicts the service's time
    DRIVER = "driver"  # it has started, and is being carried out


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    kind: HoldKind
    message: str
    since: Time
    until: Time | None = None  # at the latest; None: no time is set
    waits_for: tuple[str, ...] = ()  # ids of other events
    unblocked_by: str = ""  # who or what could let it go on


def with_clock(holds: Iterable[Hold], now: Now) -> tuple[Hold, ...]:
    """Return the holds, preceded by one for the clock if it is untrusted. In that case none of the
    others ends at a known time."""
    if now.untrusted is None:
        return tuple(holds)
    return (
        Hold(
            kind=HoldKind.CLOCK,
            message=now.clock_problem,
            since=now.untrusted.since,
            unblocked_by="whoever sets the wall clock right, or an admin, by accepting it",
        ),
        *(msgspec.structs.replace(hold, until=None) for hold in holds),
    )


def ripe_at(event: Event, now: Now) -> Time:
    """When the event may start unapproved: at NotBefore, or once the endpoint has served for a
    while again after an outage."""
    grace = now.grace_ends
    return event.not_before if grace is None else max(event.not_before, grace)


def ripe_by(now: Now) -> Time:
    """Events with a NotBefore of then or earlier may start unapproved now."""
    if now.untrusted is not None:
        return NEVER
    grace = now.grace_ends
    return now.at if grace is None or now.at >= grace else NEVER


def ripe(event: Event, now: Now) -> bool:
    return event.not_before <= ripe_by(now)


def recalled(event: Event, now: Now) -> bool:
    """Is it from a copy that has just become the state? It may have been cancelled since the copy
    was made: approved or not, it waits until somebody has had time to say so again."""
    return (
        now.restored is not None
        and event.raised_at <= now.restored
        and now.grace_ends is not None
        and now.at < now.grace_ends
    )


class Occupancy:
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

    def taken(self, event: Event) -> bool:
        """Does it have to wait for the end of another event?"""
        if event.waits and any(self._by_machine.get(name) for name in event.resources):
            return True
        return event.waits_for_domain and any(
            events for domain, events in self._by_domain.items() if domain != event.domain
        )

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
        if event.status is Status.SCHEDULED
        and event.approved is None
        and event.traits.coupled
        and not ripe(event, now)
    ]
    return sorted(waiting, key=lambda event: event.not_before)


def within(event: Event, now: Now) -> bool:
    """Is the window open that it may start in?"""
    span = event.span
    return span is None or (span.opens <= now.at and (span.closes is None or now.at < span.closes))


def unasked(event: Event, now: Now) -> bool:
    """Does it wait for its notice, since nobody has approved it?"""
    return event.approved is None and not ripe(event, now)


def coupled(event: Event, now: Now, deletes: Sequence[Event]) -> tuple[str, ...]:
    """The deletes that an approved one has to wait for. `deletes` are its group's
    `open_deletes`."""
    if not event.traits.coupled or ripe(event, now):
        return ()
    return tuple(
        other.id for other in deletes[:NAMED_AT_MOST] if other.not_before <= event.not_before
    )


def outside(event: Event, now: Now) -> list[Hold]:
    """The window it may start in is not open: approved or not, it waits."""
    span = event.span
    if span is None or within(event, now):
        return []
    early = now.at < span.opens
    return [
        Hold(
            kind=HoldKind.WINDOW,
            message="its window has not opened" if early else "its window has closed",
            since=event.raised_at if early else span.closes or span.opens,
            until=span.opens if early else None,
            unblocked_by="nobody before the window opens" if early else "whoever planned it, anew",
        )
    ]


def from_copy(event: Event, now: Now) -> list[Hold]:
    """A copy has just become the state, and this is from before."""
    if not recalled(event, now):
        return []
    return [
        Hold(
            kind=HoldKind.RESTORED,
            message="it is from a copy that has become the state, and may have been cancelled since"
            " the copy was made; approved or not, it waits until that can have been said again",
            since=now.restored or 0,
            until=now.grace_ends,
            unblocked_by="nobody before then, but an operator may cancel it",
        )
    ]


def timely(event: Event, now: Now, deletes: Sequence[Event]) -> list[Hold]:
    """Holds that time or an approval lifts. `deletes` are the group's `open_deletes`."""
    if event.joint is not None:
        return [
            Hold(
                kind=HoldKind.JOINT,
                message="it starts together with the events of the other groups on its host",
                since=event.raised_at,
                unblocked_by=f"a machine of each group: {listing(event.joint.groups)}",
            )
        ]
    return [*outside(event, now), *from_copy(event, now), *_unripe(event, now, deletes)]


def _unripe(event: Event, now: Now, deletes: Sequence[Event]) -> list[Hold]:
    if unasked(event, now):
        found = []
        if now.at < event.not_before:
            found.append(
                Hold(
                    kind=HoldKind.NOTICE,
                    message="its notice has not passed and nobody has approved it",
                    since=event.raised_at,
                    until=event.not_before,
                    unblocked_by=f"any machine of group '{event.group}', or an operator,"
                    " by approving it",
                )
            )
        graced = now.grace_ends is not None and now.at < now.grace_ends
        if graced and not recalled(event, now):  # which says as much
            found.append(
                Hold(
                    kind=HoldKind.GRACE,
                    message="the endpoint was away or its clock was stepped; nothing starts by its"
                    " NotBefore until guests have had time to ask again",
                    since=now.steady_since or 0,
                    until=now.grace_ends,
                    unblocked_by=f"any machine of group '{event.group}', or an operator,"
                    " by approving it",
                )
            )
        return found
    others = coupled(event, now, deletes)
    if not others or event.approved is None:
        return []
    return [
        Hold(
            kind=HoldKind.COUPLING,
            message="approved, but deletes of a group that are due no later go first or together",
            since=event.approved.at,
            until=ripe_at(event, now),
            waits_for=others,
            unblocked_by=f"any machine of group '{event.group}', by approving those as well",
        )
    ]


def occupied(event: Event, floor: Occupancy) -> list[Hold]:
    """Holds that only the end of another event lifts, of one that has not started."""
    found: list[Hold] = []
    if not floor.taken(event):
        return found
    if event.waits:
        busy = floor.on_machines(event.resources)
        if busy:
            found.append(
                Hold(
                    kind=HoldKind.MACHINE,
                    message="one of its machines is in another event that has started"
                    + _unannounced(busy.values()),
                    since=max(event.raised_at, _latest_start(busy.values())),
                    waits_for=tuple(busy),
                    unblocked_by="the driver that is carrying that event out",
                )
            )
    if event.waits_for_domain:
        others = floor.in_other_domains(event.domain)
        if others:
            domains = ", ".join(str(d) for d in sorted({e.domain for e in others.values()}))
            found.append(
                Hold(
                    kind=HoldKind.DOMAIN,
                    message=f"it is in update domain {event.domain}, and domain {domains} of the"
                    " group is being disturbed; one domain at a time"
                    + _unannounced(others.values()),
                    since=max(event.raised_at, _latest_start(others.values())),
                    waits_for=tuple(others),
                    unblocked_by="the drivers that are carrying those events out",
                )
            )
    return found


def _unannounced(events: Iterable[Event]) -> str:
    """Return a hint about events that a reader will not find in any document."""
    ids = [event.id for event in events if event.unannounced]
    return f" (guests are not shown {listing(ids)}: unannounced)" if ids else ""


def _latest_start(events: Iterable[Event]) -> Time:
    return max(event.started_at or event.raised_at for event in events)

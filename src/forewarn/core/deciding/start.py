"""Starting what nothing holds any more, and what that brings with it.

After every decision `settle` starts everything that can start; `why` says what holds the rest. What
holds an event is in `holds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.changes import Change, EventMoved, apply
from forewarn.core.deciding.holds import (
    Hold,
    HoldKind,
    Occupancy,
    coupled,
    occupied,
    open_deletes,
    recalled,
    ripe_by,
    timely,
    unasked,
    with_clock,
    within,
)
from forewarn.core.events import Approval, ApprovalKind, Attempt, Event, Source, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.time import Now


def settle(group: Group, now: Now) -> tuple[Change, ...]:
    """Start whatever nothing holds, in the order of raising."""
    if now.untrusted is not None:
        return ()
    if not group.policy.all_instances_down and _all_wait(group.events, now):
        return ()
    return _Settlement(group, now).items


def _all_wait(events: Sequence[Event], now: Now) -> bool:
    """Is there nothing to start at a glance? After most commands there is not, and a group may
    have thousands of events."""
    by = ripe_by(now)
    return not any(
        event.status is Status.SCHEDULED
        and event.joint is None
        and (event.approved is not None or event.not_before <= by)
        for event in events
    )


class _Settlement:
    def __init__(self, group: Group, now: Now) -> None:
        self._group, self._now = group, now
        self._present = {event.id: event for event in group.events}
        self._floor = Occupancy(group.events)
        self._naming: dict[str, list[str]] = {}  # by machine: the events that name it
        for event in group.events:
            for name in event.resources:
                self._naming.setdefault(name, []).append(event.id)
        changes: list[Change] = []
        more = True
        while more:  # a start may end what held another event, or leave nobody to be asked
            changes += self._unanswerable()
            begun = self._begun()
            changes += begun
            more = bool(begun)
        self.items = tuple(changes)

    def _begun(self) -> list[Change]:
        """One look at everything, in order."""
        found: list[Change] = []
        now, present = self._now, self._present
        ready = [event for event in present.values() if _may_go(event, now)]
        deletes: Sequence[Event] = ()
        if any(event.traits.coupled for event in ready):
            deletes = open_deletes(present.values(), now)
        for event in ready:
            if event.id not in present or self._floor.taken(event):
                continue
            if coupled(event, now, deletes):
                continue
            began = started(event, now)
            found.append(EventMoved(Move.START, began))
            present[event.id] = began
            self._floor.enter(began)
            if event.traits.deletes:
                found += self._moot(began)
        return found

    def _moot(self, delete: Event) -> list[Change]:
        """What has become pointless, since its machines are being deleted."""
        found: list[Change] = []
        named = {id: None for name in delete.resources for id in self._naming.get(name, ())}
        for id in named:
            other = self._present.get(id)
            if other is not None and moot_beside(delete, other):
                ending = f"its machine is being deleted by {delete.id}"
                found.append(ended(other, self._now, ending))
                self._floor.leave(other)
                del self._present[id]
        return found

    def _unanswerable(self) -> list[Change]:
        """Users' events that are approved because all machines are down, if that is the policy."""
        if not self._group.policy.all_instances_down:
            return []
        alive = self._group.alive
        down = {
            name
            for event in self._present.values()
            if event.status is Status.STARTED and not event.traits.keeps_memory
            for name in event.resources
        }
        if not alive or not alive <= down:
            return []
        found: list[Change] = []
        for event in list(self._present.values()):
            if (
                event.source is Source.USER
                and event.status is Status.SCHEDULED
                and event.approved is None
            ):
                approval = Approval(
                    "policy: all machines are down", self._now.at, ApprovalKind.POLICY
                )
                self._present[event.id] = move(event, Move.APPROVE, approved=approval)
                found.append(EventMoved(Move.APPROVE, self._present[event.id]))
        return found


def _may_go(event: Event, now: Now) -> bool:
    """Does nothing hold it that only its own times and approval say? What goes with others'
    events starts elsewhere."""
    return (
        event.status is Status.SCHEDULED
        and event.joint is None
        and not unasked(event, now)
        and not recalled(event, now)
        and within(event, now)
    )


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
                    message=item.event.ending,
                    since=now.at,
                    unblocked_by="nobody: it will be withdrawn",
                ),
            )
    after = apply(group, items)
    event = after.event(id)
    if event is None or event.status is not Status.SCHEDULED:
        return ()
    deletes = open_deletes(after.events, now)
    return with_clock(
        (*timely(event, now, deletes), *occupied(event, Occupancy(after.events))), now
    )


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

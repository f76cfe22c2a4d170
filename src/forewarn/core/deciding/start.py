"""Starting events that nothing holds any more, with the consequences of each start.

After every decision `settle` starts everything that can start; `why` explains what holds the rest.
The conditions themselves are in `holds.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.changes import Change, EventMoved, apply
from forewarn.core.deciding.holds import (
    HaltedMachines,
    Hold,
    HoldKind,
    Occupancy,
    awaits_approval,
    earlier_deletes,
    halt_holds,
    in_restore_grace,
    notice_over_by,
    occupancy_holds,
    time_holds,
    waiting_deletes,
    window_open,
    with_clock,
)
from forewarn.core.deciding.reach import UnreachableMachines, reach_holds
from forewarn.core.deciding.returns import polling, returned
from forewarn.core.events import Approval, ApprovalKind, Attempt, Event, Source, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.world import World


def settle(group: Group, now: World) -> tuple[Change, ...]:
    """Return the changes that end every event whose machines are back, and start every event that
    nothing holds, in the order of raising."""
    if now.untrusted is not None:
        return ()
    if over := returned(group, now):
        return (*over, *settle(apply(group, over), now))
    if not group.policy.all_instances_down and _nothing_to_start(group.events, now):
        return ()
    return _Settlement(group, now).items


def _nothing_to_start(events: Sequence[Event], now: World) -> bool:
    """Is there certainly nothing to start? A cheap check, because this is so after most commands
    and a group may have thousands of events."""
    latest = notice_over_by(now)
    return not any(
        event.status is Status.SCHEDULED
        and event.joint is None
        and (event.approved is not None or event.not_before <= latest)
        for event in events
    )


class _Settlement:
    """Computes, in `items`, the changes that `settle` returns."""

    def __init__(self, group: Group, now: World) -> None:
        self._group, self._now = group, now
        self._active = {event.id: event for event in group.events}
        self._occupancy = Occupancy(group.events)
        self._halted = HaltedMachines(group, now)
        self._unreachable = UnreachableMachines(group, now)
        self._ids_by_machine: dict[str, list[str]] = {}  # the events of each machine
        for event in group.events:
            for name in event.resources:
                self._ids_by_machine.setdefault(name, []).append(event.id)
        changes: list[Change] = []
        more = True
        while more:  # a start can withdraw what held another event, or take down the last machine
            changes += self._approve_if_all_down()
            started_now = self._start_pass()
            changes += started_now
            more = bool(started_now)
        self.items = tuple(changes)

    def _start_pass(self) -> list[Change]:
        """Start what can start, in the order of raising."""
        changes: list[Change] = []
        now, active = self._now, self._active
        ready = [
            event
            for event in active.values()
            if _may_start(self._group, event, now)
            and not self._halted.stop(event)
            and not self._unreachable.stop(event)
        ]
        deletes: Sequence[Event] = ()
        if any(event.traits.coupled for event in ready):
            deletes = waiting_deletes(active.values(), now)
        for event in ready:
            if event.id not in active or self._occupancy.blocks(event):
                continue
            if earlier_deletes(event, now, deletes):
                continue
            after = started(self._group, event, now)
            changes.append(EventMoved(Move.START, after))
            active[event.id] = after
            self._occupancy.add(after)
            if event.traits.deletes:
                changes += self._withdraw_moot(after)
        return changes

    def _withdraw_moot(self, delete: Event) -> list[Change]:
        """Withdraw or finish events that are pointless because their machines are being deleted."""
        changes: list[Change] = []
        named = {id: None for name in delete.resources for id in self._ids_by_machine.get(name, ())}
        for id in named:
            other = self._active.get(id)
            if other is not None and made_moot_by(delete, other):
                ending = f"its machine is being deleted by {delete.id}"
                changes.append(ended(other, self._now, ending))
                self._occupancy.remove(other)
                del self._active[id]
        return changes

    def _approve_if_all_down(self) -> list[Change]:
        """Approve users' events while all machines are down, if that is the policy."""
        if not self._group.policy.all_instances_down:
            return []
        alive = self._group.alive
        down = {
            name
            for event in self._active.values()
            if event.status is Status.STARTED and not event.traits.keeps_memory
            for name in event.resources
        }
        if not alive or not alive <= down:
            return []
        changes: list[Change] = []
        for event in list(self._active.values()):
            if (
                event.source is Source.USER
                and event.status is Status.SCHEDULED
                and event.approved is None
            ):
                approval = Approval(
                    "policy: all machines are down", self._now.at, ApprovalKind.POLICY
                )
                self._active[event.id] = move(event, Move.APPROVE, approved=approval)
                changes.append(EventMoved(Move.APPROVE, self._active[event.id]))
        return changes


def _may_start(group: Group, event: Event, now: World) -> bool:
    """Do its own times and its approval let it start? Joint events start in `joint.py`."""
    return (
        event.status is Status.SCHEDULED
        and event.joint is None
        and not awaits_approval(event, now)
        and not in_restore_grace(event, now)
        and window_open(group, event, now)
    )


def why(group: Group, id: str, now: World) -> tuple[Hold, ...]:
    """Return what a Scheduled event waits for: empty exactly if a Tick would start it.

    Computed for the group as it would be after a Tick, so that if only one of two events can start,
    the second one names the first.
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
    deletes = waiting_deletes(after.events, now)
    return with_clock(
        (
            *halt_holds(event, HaltedMachines(after, now)),
            *reach_holds(
                event, UnreachableMachines(after, now), now, agreed=event.approved is not None
            ),
            *time_holds(after, event, now, deletes),
            *occupancy_holds(event, Occupancy(after.events)),
        ),
        now,
    )


def started(group: Group, event: Event, now: World) -> Event:
    """Return the Started event, with its first attempt: the driver is asked right after."""
    return move(
        event,
        Move.START,
        started_at=now.at,
        attempt=Attempt(number=1, at=now.at),
        polling=polling(group, event, now),
    )


def ended(event: Event, now: World, ending: str, by: str = "") -> EventMoved:
    """Return the change that withdraws a pointless event, or finishes it if it has started."""
    what = Move.WITHDRAW if event.status is Status.SCHEDULED else Move.FINISH
    return EventMoved(what, move(event, what, ended_at=now.at, ending=ending), by)


def carried_out_jointly(event: Event) -> bool:
    """Is it carried out together with events of other groups, so that it ends only with them?"""
    return event.joint is not None and event.status is Status.STARTED


def made_moot_by(delete: Event, other: Event) -> bool:
    """Is the other event pointless once the delete has started?"""
    if carried_out_jointly(other) or other.id == delete.id:
        return False
    return set(other.resources) <= set(delete.resources)

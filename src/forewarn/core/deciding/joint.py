"""Events of several groups that go as one: a host is worked on once, for all its machines.

All start in one commit, or none does: when every group that listens has approved or NotBefore has
passed, and no group's slot or machine is taken. Nothing is held while waiting, so two of
them that meet in two groups cannot block each other. One of them, the lead, is carried out for
all; the others end with it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import msgspec

from forewarn.core.changes import Change, EventMoved, apply
from forewarn.core.deciding.finish import finished
from forewarn.core.deciding.holds import (
    Hold,
    HoldKind,
    Occupancy,
    from_copy,
    occupied,
    outside,
    recalled,
    ripe,
    ripe_at,
    with_clock,
    within,
)
from forewarn.core.deciding.start import settle, started
from forewarn.core.events import Event, Joint, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move
from forewarn.core.time import Now, Time
from forewarn.support.text import listing


def members(groups: Mapping[str, Group], joint: Joint) -> dict[str, Event]:
    """By group, in the joint's order: those that are not over."""
    return JointState(groups).members(joint)


def joints(group: Group) -> dict[str, Joint]:
    return {event.joint.id: event.joint for event in group.events if event.joint is not None}


class JointState:
    """The groups as several joints look at them, each group looked through once."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self._events: dict[str, dict[str, Event]] = {}  # by group and joint
        self._occupancies: dict[str, Occupancy] = {}

    def members(self, joint: Joint) -> dict[str, Event]:
        found = {name: self._of(name).get(joint.id) for name in joint.groups}
        return {name: event for name, event in found.items() if event is not None}

    def occupancy(self, name: str) -> Occupancy:
        if name not in self._occupancies:
            self._occupancies[name] = Occupancy(self.groups[name].events)
        return self._occupancies[name]

    def changed(self, name: str) -> None:
        self._events.pop(name, None)
        self._occupancies.pop(name, None)

    def _of(self, name: str) -> dict[str, Event]:
        if name not in self._events:
            self._events[name] = {
                event.joint.id: event for event in self.groups[name].events if event.joint
            }
        return self._events[name]

    def free(self, active: Mapping[str, Event], now: Now) -> bool:
        """Does nothing hold them, so that they start now?"""
        return (
            now.untrusted is None
            and agreed(self.groups, active, now)
            and all(within(e, now) and not recalled(e, now) for e in active.values())
            and not any(self.occupancy(name).taken(event) for name, event in active.items())
        )


def agreed(groups: Mapping[str, Group], active: Mapping[str, Event], now: Now) -> bool:
    """Has their notice passed, or has every group approved that listens, and one at least?"""
    if any(ripe(event, now) for event in active.values()):
        return True
    votes = [e.approved is not None for n, e in active.items() if e.approved or groups[n].enabled]
    return bool(votes) and all(votes)


def movable(group: Group, now: Now) -> dict[str, Joint]:
    """Return the joints that this group does not hold back all by itself."""
    return {
        event.joint.id: event.joint
        for event in group.events
        if event.joint is not None
        and (
            event.status is Status.STARTED
            or event.approved is not None
            or not group.enabled
            or ripe(event, now)
        )
    }


def joints_left(before: Group, after: Group) -> dict[str, Joint]:
    """Return the joints of which the group was a part before and is not any more."""
    remaining = joints(after)
    return {id: joint for id, joint in joints(before).items() if id not in remaining}


def settle_joints(
    states: MutableMapping[str, Group], touched: dict[str, Joint], now: Now
) -> dict[str, list[Change]]:
    """What these joints bring about now, by group: starts, and the ends of those whose lead is
    over. A start or an end in one group may matter to the next joint there."""
    items: dict[str, list[Change]] = {}
    state = JointState(states)
    while touched:
        joint = touched.pop(next(iter(touched)))
        for name, moved in _settled(state, joint, now).items():
            then = (*moved, *settle(apply(states[name], moved), now))
            states[name] = apply(states[name], then)
            state.changed(name)
            items.setdefault(name, []).extend(then)
            touched |= movable(states[name], now)
    return items


def _settled(state: JointState, joint: Joint, now: Now) -> dict[str, tuple[Change, ...]]:
    active = state.members(joint)
    begun = [event for event in active.values() if event.status is Status.STARTED]
    if begun:
        if any(event.attempt is not None for event in begun):
            return {}
        return {
            name: finished(state.groups[name], event, now, ending="carried out with its host")
            for name, event in active.items()
            if event.status is Status.STARTED
        }
    if not active or not state.free(active, now):
        return {}
    moved: dict[str, tuple[Change, ...]] = {}
    for name, event in active.items():
        begins = started(event, now)
        if moved:  # the first of them leads: the driver is asked once
            begins = msgspec.structs.replace(begins, attempt=None)
        moved[name] = (EventMoved(Move.START, begins),)
    return moved


def holds(groups: Mapping[str, Group], joint: Joint, now: Now) -> tuple[Hold, ...]:
    """What they wait for, all of them: empty exactly when they start now."""
    state = JointState(groups)
    active = state.members(joint)
    if not active or any(event.status is Status.STARTED for event in active.values()):
        return ()
    found: list[Hold] = []
    if not agreed(groups, active, now):
        found.append(_not_agreed(groups, active, now))
    found += [hold for event in active.values() for hold in from_copy(event, now)][:1]
    for name, event in active.items():
        found += outside(event, now)
        found += [
            msgspec.structs.replace(hold, message=f"in group '{name}': {hold.message}")
            for hold in occupied(event, state.occupancy(name))
        ]
    return with_clock(found, now)


def _not_agreed(groups: Mapping[str, Group], active: Mapping[str, Event], now: Now) -> Hold:
    first = next(iter(active.values()))
    silent = [n for n, e in active.items() if groups[n].enabled and e.approved is None]
    who = f"group {listing(silent)}" if silent else "its groups, none of which is listening"
    return Hold(
        kind=HoldKind.JOINT,
        message=f"its host is worked on once, for {listing(list(active))} together;"
        f" the notice has not passed, and not yet approved by {who}",
        since=first.raised_at,
        until=ripe_at(first, now),
        waits_for=tuple(active[name].id for name in silent),
        unblocked_by=f"a machine of each group that has not approved ({listing(silent)}),"
        " or an operator, by approving"
        if silent
        else "an operator, by approving one of them",
    )


def joint_due(groups: Mapping[str, Group], group: Group, now: Now) -> Time | None:
    """When time alone would start one of this group's joints, as things stand."""
    if now.untrusted is not None:
        return None
    state = JointState(groups)
    instants = [_due(state, joint, now) for joint in joints(group).values()]
    return min((at for at in instants if at is not None), default=None)


def _due(state: JointState, joint: Joint, now: Now) -> Time | None:
    active = state.members(joint)
    if any(event.status is Status.STARTED for event in active.values()):
        return None
    if any(state.occupancy(name).taken(event) for name, event in active.items()):
        return None
    at = now.at
    for event in active.values():
        if not agreed(state.groups, active, now):
            at = max(at, ripe_at(event, now))
        if now.grace_ends is not None and recalled(event, now):
            at = max(at, now.grace_ends)
        if event.span is not None:
            at = max(at, event.span.opens)
            if event.span.closes is not None and at >= event.span.closes:
                return None
    return at

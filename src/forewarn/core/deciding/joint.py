"""Joint maintenance: events of several groups that start and end together, because they are the
maintenance of one host.

All start in one commit, or none does: when every enabled group has approved or NotBefore has
passed, no machine or update domain that they need is busy, every machine on the host has been
warned, and the host can be reached. Nothing is reserved while waiting, so two joints that share two
groups cannot block each other. The driver carries out one of the events, the lead; the others end
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

import msgspec

from forewarn.core.changes import Change, EventMoved, apply
from forewarn.core.commands import Command, Raise
from forewarn.core.deciding.announce import earliest_start
from forewarn.core.deciding.configurations import (
    configurations_for,
    configurations_of,
    never_open,
)
from forewarn.core.deciding.finish import carried_out, measured
from forewarn.core.deciding.holds import (
    HaltedMachines,
    Hold,
    HoldKind,
    Occupancy,
    halt_holds,
    in_restore_grace,
    notice_over,
    notice_over_at,
    occupancy_holds,
    opens_at,
    restore_holds,
    span_open,
    window_holds,
    with_clock,
)
from forewarn.core.deciding.reach import UnreachableMachines, reach_holds
from forewarn.core.deciding.start import settle, started
from forewarn.core.events import Event, Joint, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import Hint, Refused, conflict
from forewarn.core.time import Time, ceil_second
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.core.windows.openings import is_open, next_open
from forewarn.core.world import World
from forewarn.support.text import listing


def members(groups: Mapping[str, Group], joint: Joint) -> dict[str, Event]:
    """Return the active events of a joint by group, in the joint's order."""
    return JointState(groups).members(joint)


def joints(group: Group) -> dict[str, Joint]:
    return {event.joint.id: event.joint for event in group.events if event.joint is not None}


class JointState:
    """Events, occupancy, halts and machines on unreachable hosts of groups at one instant, computed
    once per group for several joints."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self.groups = groups
        self._events: dict[str, dict[str, Event]] = {}  # by group and joint
        self._occupancies: dict[str, Occupancy] = {}
        self._halted: dict[str, HaltedMachines] = {}
        self._unreachable: dict[str, UnreachableMachines] = {}

    def members(self, joint: Joint) -> dict[str, Event]:
        events = {name: self._by_joint(name).get(joint.id) for name in joint.groups}
        return {name: event for name, event in events.items() if event is not None}

    def occupancy(self, name: str) -> Occupancy:
        if name not in self._occupancies:
            self._occupancies[name] = Occupancy(self.groups[name].events)
        return self._occupancies[name]

    def changed(self, name: str) -> None:
        self._events.pop(name, None)
        self._occupancies.pop(name, None)
        self._halted.pop(name, None)
        self._unreachable.pop(name, None)

    def _by_joint(self, name: str) -> dict[str, Event]:
        if name not in self._events:
            self._events[name] = {
                event.joint.id: event for event in self.groups[name].events if event.joint
            }
        return self._events[name]

    def halted(self, active: Mapping[str, Event], now: World) -> bool:
        """Has an operator halted one of the events of a joint?"""
        return bool(now.halts) and any(
            self.halted_machines(name, now).stop(event) for name, event in active.items()
        )

    def halted_machines(self, name: str, now: World) -> HaltedMachines:
        if name not in self._halted:
            self._halted[name] = HaltedMachines(self.groups[name], now)
        return self._halted[name]

    def cut_off(self, active: Mapping[str, Event], now: World) -> bool:
        """Is one of the events of a joint on a host that is unreachable now?"""
        return bool(now.unreachable or now.strayed) and any(
            self.unreachable_machines(name, now).cut_off(event) for name, event in active.items()
        )

    def unreachable_grace_ends(self, active: Mapping[str, Event], now: World) -> Time:
        """Return until when a joint does not start by its NotBefore because its host was
        unreachable; 0 if it was not, or if the joint is approved."""
        if not (now.unreachable or now.left_unreachable) or approved(self.groups, active):
            return 0
        ends = [
            self.unreachable_machines(name, now).grace_ends(event) for name, event in active.items()
        ]
        return max((at for at in ends if at is not None), default=0)

    def unreachable_machines(self, name: str, now: World) -> UnreachableMachines:
        if name not in self._unreachable:
            self._unreachable[name] = UnreachableMachines(self.groups[name], now)
        return self._unreachable[name]

    def configurations(
        self, active: Mapping[str, Event], now: World
    ) -> tuple[MaintenanceConfiguration, ...]:
        """Return the configurations that the events of a joint have to obey. An operator's override
        is for one event: what the other groups have been promised stands."""
        found = [configurations_of(self.groups[name], event, now) for name, event in active.items()]
        return tuple(dict.fromkeys(c for configurations in found for c in configurations))

    def can_start(self, active: Mapping[str, Event], now: World) -> bool:
        """Can the events of a joint start now, because nothing holds any of them?"""
        return (
            now.untrusted is None
            and not self.halted(active, now)
            and not self.cut_off(active, now)
            and now.at >= self.unreachable_grace_ends(active, now)
            and not _uninformed(active, now)
            and agreed(self.groups, active, now)
            and all(span_open(e, now) and not in_restore_grace(e, now) for e in active.values())
            and is_open(self.configurations(active, now), now.at)
            and not any(self.occupancy(name).blocks(event) for name, event in active.items())
        )


def _uninformed(active: Mapping[str, Event], now: World) -> tuple[str, ...]:
    """Return the machines on the host of a joint that do not know of it."""
    return next((now.uninformed.get(event.host, ()) for event in active.values()), ())


def agreed(groups: Mapping[str, Group], active: Mapping[str, Event], now: World) -> bool:
    """Has their notice passed, or have all enabled groups, and at least one group, approved?"""
    return any(notice_over(event, now) for event in active.values()) or approved(groups, active)


def approved(groups: Mapping[str, Group], active: Mapping[str, Event]) -> bool:
    """Have all enabled groups, and at least one group, approved?"""
    missing = any(groups[name].lacks_approval(event) for name, event in active.items())
    return not missing and any(event.approved for event in active.values())


def movable_joints(group: Group, now: World) -> dict[str, Joint]:
    """Return the joints that may start or end as far as this group is concerned."""
    return {
        event.joint.id: event.joint
        for event in group.events
        if event.joint is not None
        and (
            event.status is Status.STARTED
            or event.approved is not None
            or not group.enabled
            or notice_over(event, now)
        )
    }


def departed_joints(before: Group, after: Group) -> dict[str, Joint]:
    """Return the joints that the group took part in before and no longer does."""
    remaining = joints(after)
    return {id: joint for id, joint in joints(before).items() if id not in remaining}


def settle_joints(
    states: MutableMapping[str, Group],
    touched: dict[str, Joint],
    now: World,
    away: Mapping[str, float],
) -> dict[str, list[Change]]:
    """Start the joints that can start, and end those whose lead is over; return changes by group.
    `away` says for how many seconds machines of those stood still.

    A start or an end in a group can release another joint there, which is then settled as well.
    """
    items: dict[str, list[Change]] = {}
    state = JointState(states)
    while touched:
        joint = touched.pop(next(iter(touched)))
        for name, own in _settled(state, joint, now, away).items():
            changes = (*own, *settle(apply(states[name], own), now))
            states[name] = apply(states[name], changes)
            state.changed(name)
            items.setdefault(name, []).extend(changes)
            touched |= movable_joints(states[name], now)
    return items


def _settled(
    state: JointState, joint: Joint, now: World, away: Mapping[str, float]
) -> dict[str, tuple[Change, ...]]:
    active = state.members(joint)
    started_events = [event for event in active.values() if event.status is Status.STARTED]
    if started_events:
        if any(event.attempt is not None and event.waiting is None for event in started_events):
            return {}
        ending = "carried out with its host"
        return {
            name: carried_out(state.groups[name], measured(event, away), now, ending=ending)
            for name, event in active.items()
            if event.status is Status.STARTED and event.waiting is None
        }
    if not active or not state.can_start(active, now):
        return {}
    starts: dict[str, tuple[Change, ...]] = {}
    for name, event in active.items():
        after = started(state.groups[name], event, now)
        if starts:  # the first event leads: the driver is asked only once
            after = msgspec.structs.replace(after, attempt=None)
        starts[name] = (EventMoved(Move.START, after),)
    return starts


def holds(groups: Mapping[str, Group], joint: Joint, now: World) -> tuple[Hold, ...]:
    """Return what the events of a joint wait for: empty exactly if they start now."""
    state = JointState(groups)
    active = state.members(joint)
    if not active or any(event.status is Status.STARTED for event in active.values()):
        return ()
    halts = {
        hold.unblocked_by: hold
        for name, event in active.items()
        for hold in halt_holds(event, state.halted_machines(name, now))
    }  # each of them once, although it may cover several groups
    result = list(halts.values())
    everybody = approved(groups, active)
    result += _once(
        (name, hold)
        for name, event in active.items()
        for hold in reach_holds(event, state.unreachable_machines(name, now), now, agreed=everybody)
    )
    if uninformed := _uninformed(active, now):
        result.append(_not_warned(uninformed, active))
    if not agreed(groups, active, now):
        result.append(_not_agreed(groups, active, now))
    result += [hold for event in active.values() for hold in restore_holds(event, now)][:1]
    configurations = state.configurations(active, now)
    windows = {
        (hold.kind, hold.message): hold
        for number, event in enumerate(active.values())
        for hold in window_holds(event, () if number else configurations, now)
    }
    result += windows.values()
    result += _once(
        (name, hold)
        for name, event in active.items()
        for hold in occupancy_holds(event, state.occupancy(name))
    )
    return with_clock(result, now)


def _once(holds: Iterable[tuple[str, Hold]]) -> Iterator[Hold]:
    """Yield what holds groups, each hold once, with the names of the groups after it."""
    found: dict[tuple[HoldKind, str, str], list[tuple[str, Hold]]] = {}
    for name, hold in holds:
        key = hold.kind, hold.message, hold.unblocked_by
        found.setdefault(key, []).append((name, hold))
    for members in found.values():
        names, alike = zip(*members, strict=True)
        untils = [hold.until for hold in alike if hold.until is not None]
        yield msgspec.structs.replace(
            alike[0],
            message=f"{alike[0].message} (group {listing(names)})",
            since=min(hold.since for hold in alike),
            until=max(untils) if len(untils) == len(alike) else None,
            waits_for=tuple(dict.fromkeys(id for hold in alike for id in hold.waits_for)),
        )


def _not_warned(machines: Sequence[str], active: Mapping[str, Event]) -> Hold:
    first = next(iter(active.values()))
    return Hold(
        kind=HoldKind.PLACEMENT,
        message=f"{listing(machines)} may be on host '{first.host}' and would not be warned: its"
        " maintenance has not been announced to them",
        since=first.raised_at,
        unblocked_by="an operator, by recording on which other host each of them is, or by"
        " cancelling the maintenance and planning it again",
    )


def _not_agreed(groups: Mapping[str, Group], active: Mapping[str, Event], now: World) -> Hold:
    first = next(iter(active.values()))
    unapproved = [name for name, event in active.items() if groups[name].lacks_approval(event)]
    missing, whose = (
        f"group {listing(unapproved)}",
        f"that has not approved ({listing(unapproved)})",
    )
    if len(unapproved) == len(active) > 1:  # named already
        missing, whose = "any of them", "of the host"
    elif not unapproved:
        missing = "its groups, none of which is enabled"
    return Hold(
        kind=HoldKind.JOINT,
        message=f"its host is maintained once, for {listing(list(active))} together;"
        f" the notice has not passed, and it is not yet approved by {missing}",
        since=first.raised_at,
        until=notice_over_at(first, now),
        waits_for=tuple(active[name].id for name in unapproved),
        unblocked_by=f"a machine of each group {whose}, or an operator, by approving"
        if unapproved
        else "an operator, by approving one of them",
    )


class JointsDue:
    """When time alone starts joints at one instant, computed once per joint for all its groups."""

    def __init__(self, groups: Mapping[str, Group], now: World) -> None:
        self._state, self._now = JointState(groups), now
        self._due: dict[str, Time | None] = {}

    def next(self, group: Group) -> Time | None:
        """Return when time alone starts one of the group's joints in the current state."""
        if self._now.untrusted is not None:
            return None
        instants = [self._of(joint) for joint in joints(group).values()]
        return min((at for at in instants if at is not None), default=None)

    def _of(self, joint: Joint) -> Time | None:
        if joint.id not in self._due:
            self._due[joint.id] = _due(self._state, joint, self._now)
        return self._due[joint.id]


def _due(state: JointState, joint: Joint, now: World) -> Time | None:
    active = state.members(joint)
    if any(event.status is Status.STARTED for event in active.values()):
        return None
    if any(state.occupancy(name).blocks(event) for name, event in active.items()):
        return None
    if state.halted(active, now) or state.cut_off(active, now) or _uninformed(active, now):
        return None
    ready = max(now.at, state.unreachable_grace_ends(active, now))
    waits_for_notice = not agreed(state.groups, active, now)
    for event in active.values():
        if waits_for_notice:
            ready = max(ready, notice_over_at(event, now))
        if now.grace_ends is not None and in_restore_grace(event, now):
            ready = max(ready, now.grace_ends)
    configurations = state.configurations(active, now)
    at: Time | None = ready
    for event in active.values():
        if at is not None:
            at = opens_at(event, configurations, at)
    return at


def with_common_start(
    groups: Mapping[str, Group], commands: Sequence[tuple[str, Command]], now: World
) -> Sequence[tuple[str, Command]] | Refused:
    """Return the commands with one NotBefore for all events of a joint that are announced together:
    the first time that the configurations of all groups allow."""
    together: dict[str, list[tuple[str, Raise]]] = {}
    for name, command in commands:
        if isinstance(command, Raise) and command.joint and not command.ignore_windows:
            together.setdefault(command.joint.id, []).append((name, command))
    if not together:
        return commands
    times: dict[str, Time] = {}
    for id, members in together.items():
        first = members[0][1]
        if first.not_before is not None or first.span is not None:
            continue  # the time is given, and is checked for each group
        configurations = tuple(
            dict.fromkeys(
                configuration
                for name, command in members
                for configuration in configurations_for(groups[name], command.machines, now)
            )
        )
        earliest = earliest_start(first, now)
        span = next_open(configurations, earliest)
        if span is None:
            return conflict(never_open(configurations), hint=Hint.IGNORE_WINDOWS)
        if span.opens > earliest:
            times[id] = ceil_second(span.opens)
    if not times:
        return commands
    return [
        (name, msgspec.structs.replace(command, notice=None, not_before=times[command.joint.id]))
        if isinstance(command, Raise) and command.joint and command.joint.id in times
        else (name, command)
        for name, command in commands
    ]

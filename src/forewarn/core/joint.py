"""Events of several groups that go as one: a host is worked on once, for all its machines.

All start in one commit, or none does: when every group that listens has approved or NotBefore has
passed, and no group's slot or machine is taken. Nothing is held while waiting, so two of
them that meet in two groups cannot block each other. One of them, the lead, is carried out for
all; the others end with it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import cast

import msgspec

from forewarn.core.aftermath import finished
from forewarn.core.changes import Change, Changes, EventMoved, apply
from forewarn.core.commands import Command
from forewarn.core.decide import decide_and_apply
from forewarn.core.events import Event, Joint, Status
from forewarn.core.group import Group
from forewarn.core.holds import (
    Floor,
    Hold,
    HoldKind,
    occupied,
    outside,
    ripe,
    ripe_at,
    settle,
    started,
)
from forewarn.core.lifecycle import Move
from forewarn.core.refusal import Refused
from forewarn.core.time import Now, Time
from forewarn.core.words import listing


def members(groups: Mapping[str, Group], joint: Joint) -> dict[str, Event]:
    """By group, in the joint's order: those that are not over."""
    found = {}
    for name in joint.groups:
        for event in groups[name].events:
            if event.joint is not None and event.joint.id == joint.id:
                found[name] = event
    return found


def joints(group: Group) -> dict[str, Joint]:
    return {event.joint.id: event.joint for event in group.events if event.joint is not None}


class Together(msgspec.Struct, frozen=True):
    """What several commands bring about as one: a decision for each, and all changes by group."""

    decisions: tuple[Changes, ...]
    items: Mapping[str, tuple[Change, ...]]
    after: Mapping[str, Group] = {}  # of the groups that one decision changed, and nothing else


def decide_together(
    groups: Mapping[str, Group], commands: Sequence[tuple[str, Command]], now: Now
) -> Together | Refused:
    """Decide one after the other, each seeing what those before it have done: all, or the first
    refusal. What is thereby set free to start in several groups at once starts with it."""
    after: dict[str, Group] = {}
    states = ChainMap(after, cast("MutableMapping[str, Group]", groups))
    items: dict[str, list[Change]] = {}
    once: dict[str, Group] = {}
    decisions = []
    touched: dict[str, Joint] = {}
    for name, command in commands:
        before = states[name]
        decided = decide_and_apply(before, command, now)
        if isinstance(decided, Refused):
            return decided
        decision, then = decided
        decisions.append(decision)
        touched |= joints(before)
        if decision.items:
            # Changes that are applied together count as one: after a second decision the
            # group's state is another than that of both, one after the other.
            if name in items:
                once.pop(name, None)
            else:
                once[name] = then
            items.setdefault(name, []).extend(decision.items)
            after[name] = then
            touched |= joints(then)
    for name, more in _settle(states, touched, now).items():
        once.pop(name, None)
        items.setdefault(name, []).extend(more)
    return Together(tuple(decisions), {name: tuple(some) for name, some in items.items()}, once)


def _settle(
    states: MutableMapping[str, Group], touched: dict[str, Joint], now: Now
) -> dict[str, list[Change]]:
    """What these joints bring about now, by group: starts, and the ends of those whose lead is
    over. A start or an end in one group may matter to the next joint there."""
    items: dict[str, list[Change]] = {}
    while touched:
        joint = touched.pop(next(iter(touched)))
        for name, moved in _settled(states, joint, now).items():
            then = (*moved, *settle(apply(states[name], moved), now))
            states[name] = apply(states[name], then)
            items.setdefault(name, []).extend(then)
            touched |= joints(states[name])
    return items


def _settled(groups: Mapping[str, Group], joint: Joint, now: Now) -> dict[str, tuple[Change, ...]]:
    active = members(groups, joint)
    begun = [event for event in active.values() if event.status is Status.STARTED]
    if begun:
        if any(event.attempt is not None for event in begun):
            return {}
        return {
            name: finished(groups[name], event, now, ending="carried out with its host")
            for name, event in active.items()
            if event.status is Status.STARTED
        }
    if not active or holds(groups, joint, now):
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
    active = members(groups, joint)
    if not active or any(event.status is Status.STARTED for event in active.values()):
        return ()
    found: list[Hold] = []
    first = next(iter(active.values()))
    if not ripe(first, now):
        open_ = [n for n, e in active.items() if groups[n].enabled and e.approved is None]
        approved = [e.approved.at for e in active.values() if e.approved is not None]
        if open_ or not approved:
            who = f"group {listing(open_)}" if open_ else "its groups, none of which is listening"
            found.append(
                Hold(
                    kind=HoldKind.JOINT,
                    says=f"its host is worked on once, for {listing(list(active))} together;"
                    f" the notice has not passed, and not yet approved by {who}",
                    since=min([first.raised_at, *approved]),
                    until=ripe_at(first, now),
                    waits_for=tuple(active[name].id for name in open_),
                    movers=f"a machine of each group that has not approved ({listing(open_)}),"
                    " or an operator, by approving"
                    if open_
                    else "an operator, by approving one of them",
                )
            )
    for name, event in active.items():
        found += outside(event, now)
        found += [
            msgspec.structs.replace(hold, says=f"in group '{name}': {hold.says}")
            for hold in occupied(event, Floor(groups[name].events))
        ]
    return tuple(found)


def joint_due(groups: Mapping[str, Group], joint: Joint, now: Now) -> Time | None:
    """When time alone would start them, as things stand."""
    active = members(groups, joint)
    if not active or any(event.status is Status.STARTED for event in active.values()):
        return None
    if any(occupied(event, Floor(groups[name].events)) for name, event in active.items()):
        return None
    held = holds(groups, joint, now)
    return max((hold.until for hold in held if hold.until is not None), default=now.at)

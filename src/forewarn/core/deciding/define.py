"""Making a group what the inventory says, but for what has happened to its machines since."""

from __future__ import annotations

import msgspec

from forewarn.core import commands as c
from forewarn.core.changes import (
    Change,
    Changes,
    Disabled,
    GroupDefined,
    MachinePut,
    MachineRemoved,
    apply,
)
from forewarn.core.deciding.finish import moot, put_elsewhere
from forewarn.core.fleet import Machine
from forewarn.core.group import Group
from forewarn.core.refusal import Hint, Refused, conflict
from forewarn.core.time import Now
from forewarn.support.text import listing


def define(group: Group, command: c.Define, now: Now) -> Changes | Refused:
    items: list[Change] = []
    by = command.by
    wanted = GroupDefined(command.kind, command.policy, command.place, command.labels, by)
    if wanted != GroupDefined(group.kind, group.policy, group.place, group.labels, by):
        items.append(wanted)
    known = {machine.name: machine for machine in group.machines}
    elsewhere: dict[str, str] = {}
    regrouped: set[str] = set()  # in another update domain than their events count on
    for machine in command.machines:
        before = known.pop(machine.name, None)
        there = placed(before, machine)
        if before != there:
            items.append(MachinePut(there, by))
            if before is not None and before.update_domain != there.update_domain:
                regrouped.add(machine.name)
            # One that had no host has not moved: only now is it said where it is.
            if before is not None and before.host and before.host != there.host:
                elsewhere[machine.name] = there.host
    if not command.force and (busy := _busy(group, regrouped | set(known))):
        return busy
    if not items and not known:
        return Changes()
    items += [MachineRemoved(name, by) for name in known]
    items += put_elsewhere(group, elsewhere, by)
    after = apply(group, tuple(items))
    items += moot(after, now)
    if not after.machines and (group.enabled or group.enabling_until is not None):
        items.append(Disabled("it has no machines", by))  # whoever is called so next has not asked
    return Changes(tuple(items))


def _busy(group: Group, names: set[str]) -> Refused | None:
    """Which of them are in an event that is not over?"""
    found = [
        f"'{name}' ({event.type.value} {event.id}, {event.status.value})"
        for event in group.events
        for name in event.resources
        if name in names
    ]
    if not found:
        return None
    return conflict(
        f"of group '{group.name}' these would be removed or change their update domain, but have"
        " an active event:"
        f" {listing(found)}; wait, or cancel the events",
        hint=Hint.FORCE,
    )


def placed(known: Machine | None, wanted: Machine) -> Machine:
    """What the inventory says, but for what has happened to the machine since."""
    if known is None:
        return wanted
    kept: dict[str, str] = {"gone": known.gone}
    if known.moved_from and known.moved_from == wanted.host:
        kept |= {"host": known.host, "moved_from": known.moved_from}
    return msgspec.structs.replace(wanted, **kept)

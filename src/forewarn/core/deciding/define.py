"""Defining a group from the inventory, without undoing what has happened to its machines since."""

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
    Renumbered,
    apply,
)
from forewarn.core.deciding.finish import moot, rehosted
from forewarn.core.fleet import Machine, Placement
from forewarn.core.group import Group
from forewarn.core.refusal import Hint, Refused, conflict
from forewarn.core.world import World
from forewarn.support.text import listing


def define(group: Group, command: c.Define, now: World) -> Changes | Refused:
    items: list[Change] = []
    by = command.by
    wanted = GroupDefined(command.kind, command.policy, command.place, command.labels, by)
    if wanted != GroupDefined(group.kind, group.policy, group.place, group.labels, by):
        items.append(wanted)
    if now.defined_above and group == Group(name=group.name):
        items.append(Renumbered(now.defined_above))
    missing = {machine.name: machine for machine in group.machines}
    elsewhere: dict[str, str] = {}
    regrouped: set[str] = set()  # whose domain differs from that of their events
    for machine in command.machines:
        before = missing.pop(machine.name, None)
        merged = merged_machine(before, machine, command)
        if before != merged:
            items.append(MachinePut(merged, by))
            if before is not None and before.domain != merged.domain:
                regrouped.add(machine.name)
            # A machine that had no host has not moved: its host has only become known.
            if before is not None and before.host and before.host != merged.host:
                elsewhere[machine.name] = merged.host
    if not command.force and (busy := _busy(group, regrouped | set(missing))):
        return busy
    if not items and not missing:
        return Changes()
    items += [MachineRemoved(name, by) for name in missing]
    items += rehosted(group, elsewhere, by)
    after = apply(group, tuple(items))
    items += moot(after, now)
    if not after.machines and (group.enabled or group.enabling_until is not None):
        # A later group of this name has not been polled.
        items.append(Disabled("it has no machines", by))
    return Changes(tuple(items))


def _busy(group: Group, names: set[str]) -> Refused | None:
    """Refuse if any of these machines is in an active event."""
    busy = [
        f"'{name}' ({event.type.value} {event.id}, {event.status.value})"
        for event in group.events
        for name in event.resources
        if name in names
    ]
    if not busy:
        return None
    return conflict(
        f"machines of group '{group.name}' would be removed or change their update domain while"
        f" they have an active event: {listing(busy)}; wait, or cancel the events",
        hint=Hint.FORCE,
    )


def merged_machine(current: Machine | None, wanted: Machine, command: c.Define) -> Machine:
    """Return the machine as in the inventory, but with what has happened to it since.

    That is an eviction or delete, and a move of which the inventory does not know yet. A definition
    that was observed after such a move contradicts it, unless it says which source counts. One that
    names the host from which a driver has moved the machine says nothing new: it does not know of
    the move. That a machine polls on another host is not explained by a definition that does not
    put it there.
    """
    if current is None:
        return wanted
    host, moved_from, disputed = wanted.host, None, ""
    observed = command.observed and wanted.name not in command.kept
    placement = command.placement if observed else None
    if wanted.name not in command.placed and current.host != wanted.host:
        moved = current.moved_from is not None
        if placement is Placement.REPORTED and current.host:
            host, moved_from = current.host, wanted.host
        elif moved and (not wanted.host or placement is None):
            host, moved_from = current.host, wanted.host
            says_more = wanted.host != current.moved_from or (observed and not current.relocated)
            disputed = wanted.host if says_more else current.disputed
    by_poll = (
        current.disputed_by_poll and host != current.disputed and wanted.name not in command.placed
    )
    return msgspec.structs.replace(
        wanted,
        gone=current.gone,
        not_back=current.not_back,
        host=host,
        moved_from=moved_from,
        relocated=current.relocated and moved_from == current.moved_from,
        disputed=current.disputed if by_poll else disputed,
        disputed_by_poll=by_poll,
        answered_on=current.answered_on if host == current.host else "",
    )

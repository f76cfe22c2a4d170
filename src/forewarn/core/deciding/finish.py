"""What the end of an event brings with it: machines that are gone, moved, or freed, and the
other events that this makes pointless."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from forewarn.core.changes import Change, EventMoved, MachinePut, apply
from forewarn.core.deciding.start import bound, ended
from forewarn.core.events import Event, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.time import Now


def finished(
    group: Group,
    event: Event,
    now: Now,
    *,
    ending: str = "carried out",
    carried_out: bool = True,
    by: str = "",
    moved: dict[str, str] | None = None,
    note: str = "",
) -> tuple[Change, ...]:
    """A Started event is over, and so is whatever depended on its machines being as they were."""
    over = move(event, Move.FINISH, ended_at=now.at, ending=ending, carried_out=carried_out)
    items: list[Change] = [EventMoved(Move.FINISH, over, by, note)]
    if event.traits.deletes:
        items += [
            MachinePut(msgspec.structs.replace(machine, gone=event.traits.gone))
            for machine in group.machines
            if machine.name in event.resources and machine.alive
        ]
    if event.relocates:
        items += _relocated(group, event, moved or {})
        items += _left(group, event, moved or {})
    mover = f"with {event.id}" if event.relocates else ""
    return (*items, *moot(apply(group, tuple(items)), now, mover))


def moot(group: Group, now: Now, mover: str = "") -> list[Change]:
    """Events that concern nobody any more, though they still name their machines: these are
    gone, or have moved away (by the redeploy `mover`) before the event began."""
    alive = group.alive
    items: list[Change] = []
    for event in group.events:
        there = alive.intersection(event.resources)
        if bound(event):
            continue
        if not there:
            items.append(ended(event, now, "all its machines are gone"))
        elif event.status is Status.SCHEDULED and there <= set(event.left):
            items.append(ended(event, now, f"settled: its machines have moved {mover}".rstrip()))
    return items


def _relocated(group: Group, event: Event, moved: dict[str, str]) -> list[Change]:
    items: list[Change] = []
    for machine in group.machines:
        host = moved.get(machine.name)
        if machine.name in event.resources and host is not None and host != machine.host:
            came_from = machine.moved_from or machine.host
            items.append(
                MachinePut(msgspec.structs.replace(machine, host=host, moved_from=came_from))
            )
    return items


def _left(group: Group, event: Event, moved: dict[str, str]) -> list[Change]:
    """Whoever moved to another host is no longer concerned by what was planned for the old one.
    Where an event is about one host, it counts whether the machine is on it still."""
    items: list[Change] = []
    where = {machine.name: moved.get(machine.name, machine.host) for machine in group.machines}
    for other in group.events:
        left = tuple(
            name
            for name in other.resources
            if name in event.resources and not (other.host and where.get(name) == other.host)
        )
        if left and other.host_bound and other.id != event.id:
            after = move(other, Move.LEAVE, left=tuple(dict.fromkeys((*other.left, *left))))
            items.append(EventMoved(Move.LEAVE, after))
    return items


def put_elsewhere(group: Group, hosts: Mapping[str, str], by: str) -> list[Change]:
    """The inventory has these machines on other hosts now: what is planned for the old ones does
    not concern them any more. What has begun goes on with them."""
    items: list[Change] = []
    for event in group.events if hosts else ():
        if event.status is not Status.SCHEDULED or not event.host_bound:
            continue
        left = [name for name in event.resources if name in hosts and name not in event.left]
        if event.host:  # whoever comes to the very host is concerned
            left = [name for name in left if hosts[name] != event.host]
        if left:
            after = move(event, Move.LEAVE, left=(*event.left, *left))
            items.append(EventMoved(Move.LEAVE, after, by))
    return items

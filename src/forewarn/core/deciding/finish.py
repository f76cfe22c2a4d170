"""Finishing events and recording moves, with the consequences: machines that no longer exist or are
elsewhere, and events that become pointless."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from forewarn.core.changes import Change, Changes, EventMoved, MachinePut, apply
from forewarn.core.commands import RecordMove, SuspectMove
from forewarn.core.deciding.returns import waiting
from forewarn.core.deciding.start import carried_out_jointly, ended
from forewarn.core.events import Event, Status
from forewarn.core.fleet import Machine
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.refusal import Refused, unknown
from forewarn.core.world import World


def measured(event: Event, away: Mapping[str, float]) -> Event:
    """Return an event with the seconds for which those of its machines stood still."""
    own = {name: away[name] for name in event.resources if name in away} if away else {}
    return msgspec.structs.replace(event, away=event.away | own) if own else event


def carried_out(
    group: Group,
    event: Event,
    now: World,
    *,
    ending: str = "carried out",
    moved: dict[str, str] | None = None,
    output: str = "",
    answer: str = "",
) -> tuple[Change, ...]:
    """Return the changes after a Started event was carried out: it is over, or waits until its
    machines are back."""
    wait = waiting(group, event, now)
    if wait is None:
        return finished(group, event, now, ending=ending, moved=moved, output=output, answer=answer)
    attempt = event.attempt
    if attempt is not None:
        # What was reserved for its machines, they have now.
        attempt = msgspec.structs.replace(attempt, open=False, next_at=None, note="", targets={})
    after = move(event, Move.ANSWER, attempt=attempt, waiting=wait)
    items: list[Change] = [EventMoved(Move.ANSWER, after, output=output, answer=answer)]
    return _with_moves(group, event, now, items, moved or {}, by_driver=True)


def finished(
    group: Group,
    event: Event,
    now: World,
    *,
    ending: str = "carried out",
    carried_out: bool = True,
    abandoned: bool = False,
    by: str = "",
    moved: dict[str, str] | None = None,
    output: str = "",
    answer: str = "",
) -> tuple[Change, ...]:
    """Return the changes that finish a Started event, and those events that become pointless. An
    event that is abandoned has done nothing to its machines."""
    over = move(
        event,
        Move.FINISH,
        ended_at=now.at,
        ending=ending,
        carried_out=carried_out,
        abandoned=abandoned,
    )
    items: list[Change] = [EventMoved(Move.FINISH, over, by, output=output, answer=answer)]
    if abandoned:
        return tuple(items)
    if event.traits.deletes:
        items += [
            MachinePut(msgspec.structs.replace(machine, gone=event.traits.gone))
            for machine in group.machines
            if machine.name in event.resources and machine.alive
        ]
    return _with_moves(group, event, now, items, moved or {}, by_driver=carried_out)


def _with_moves(
    group: Group,
    event: Event,
    now: World,
    items: list[Change],
    moved: dict[str, str],
    *,
    by_driver: bool,
) -> tuple[Change, ...]:
    """Return these changes of an event that was carried out, and those that follow because its
    machines have moved, which they do once."""
    relocates = event.relocates and event.waiting is None
    if not relocates and not moved:
        return (*items, *moot(apply(group, tuple(items)), now))
    departing = event.resources if relocates else tuple(moved)
    return _moved(group, event, now, items, departing, moved, by_driver=by_driver)


def partly_moved(
    group: Group, event: Event, now: World, change: EventMoved, moved: dict[str, str]
) -> tuple[Change, ...]:
    """Return the changes that record which machines of an event that is not over have moved: it is
    no longer about them."""
    left = tuple(dict.fromkeys((*event.left, *moved)))
    change = msgspec.structs.replace(change, event=msgspec.structs.replace(change.event, left=left))
    return _moved(group, event, now, [change], tuple(moved), moved, by_driver=True)


def _moved(
    group: Group,
    event: Event,
    now: World,
    items: list[Change],
    departing: Collection[str],
    moved: dict[str, str],
    *,
    by_driver: bool,
) -> tuple[Change, ...]:
    """Return these changes, and those that follow because machines of the event have moved."""
    items += _relocated(apply(group, tuple(items)), event, moved, by_driver=by_driver)
    items += _departures(group, event, departing, moved)
    return (*items, *moot(apply(group, tuple(items)), now, f"with {event.id}"))


def moot(group: Group, now: World, moved_by: str = "") -> list[Change]:
    """Return the changes that end pointless events: all machines of these no longer exist, or have
    moved away (by the event that `moved_by` names) before the event started."""
    if not group.events:
        return []
    alive = group.alive
    items: list[Change] = []
    for event in group.events:
        alive_resources = alive.intersection(event.resources)
        if carried_out_jointly(event):
            continue
        if not alive_resources:
            items.append(ended(event, now, "all its machines are gone"))
        elif event.status is Status.SCHEDULED and alive_resources <= group.away(event):
            items.append(ended(event, now, f"settled: its machines have moved {moved_by}".rstrip()))
    return items


def _relocated(
    group: Group, event: Event, moved: dict[str, str], *, by_driver: bool
) -> list[Change]:
    """Return the changes that put the event's machines on their new hosts."""
    items: list[Change] = []
    for machine in group.machines:
        host = moved.get(machine.name)
        if machine.name in event.resources and host is not None:
            after = machine_on(machine, host, by_driver=by_driver)
            if after != machine:
                items.append(MachinePut(after))
    return items


def machine_on(machine: Machine, host: str, *, by_driver: bool = False) -> Machine:
    """Return a machine that is known to be on this host, whatever the inventory says."""
    moved_from = None if machine.inventory_host == host else machine.inventory_host
    relocated = by_driver or (machine.relocated and machine.host == host)
    return msgspec.structs.replace(
        machine,
        host=host,
        moved_from=moved_from,
        relocated=relocated and moved_from is not None,
        disputed="",
        disputed_by_poll=False,
        answered_on=machine.answered_on if machine.host == host else "",
    )


def record_move(group: Group, command: RecordMove, now: World) -> Changes | Refused:
    """Record that a machine is on a host: what is planned for its old host is not for it."""
    machine = group.machine(command.machine)
    if machine is None:
        return unknown(f"no machine '{command.machine}' in group '{group.name}'")
    after = machine_on(machine, command.host)
    if after == machine:
        return Changes(notes=(f"it was already known to be on host '{command.host}'",))
    items: list[Change] = [MachinePut(after, command.by)]
    if machine.host and machine.host != after.host:
        items += rehosted(group, {machine.name: after.host}, command.by)
    items += moot(apply(group, tuple(items)), now)
    return Changes(tuple(items))


def suspect_move(group: Group, command: SuspectMove) -> Changes | Refused:
    """Record that a machine may be on another host: what would disturb it waits."""
    machine = group.machine(command.machine)
    if machine is None:
        return unknown(f"no machine '{command.machine}' in group '{group.name}'")
    after = msgspec.structs.replace(machine, disputed=command.host, disputed_by_poll=True)
    if after == machine or not machine.alive or machine.host == command.host:
        return Changes()
    return Changes((MachinePut(after, command.by),))


def _departures(
    group: Group, event: Event, departing: Collection[str], moved: dict[str, str]
) -> list[Change]:
    """Take the departing machines out of what was planned for their old hosts.

    An event that is about one host keeps the machines that are still on that host.
    """
    items: list[Change] = []
    hosts = {machine.name: moved.get(machine.name, machine.host) for machine in group.machines}
    for other in group.events:
        departed = tuple(
            name
            for name in other.resources
            if name in departing and not (other.host and hosts.get(name) == other.host)
        )
        if departed and other.host_bound and other.id != event.id:
            after = move(other, Move.LEAVE, left=tuple(dict.fromkeys((*other.left, *departed))))
            items.append(EventMoved(Move.LEAVE, after))
    return items


def rehosted(group: Group, hosts: Mapping[str, str], by: str) -> list[Change]:
    """Take machines that the inventory has on other hosts now out of what is planned for the old
    ones. Events that have started keep them."""
    items: list[Change] = []
    for event in group.events if hosts else ():
        if event.status is not Status.SCHEDULED or not event.host_bound:
            continue
        departed = [name for name in event.resources if name in hosts and name not in event.left]
        if event.host:  # a machine that has moved to this very host stays concerned
            departed = [name for name in departed if hosts[name] != event.host]
        if departed:
            after = move(event, Move.LEAVE, left=(*event.left, *departed))
            items.append(EventMoved(Move.LEAVE, after, by))
    return items

"""Checks in the commit of a fleet, of what may have happened since the difference was computed.

Hosts fail, are maintained and are given machines while a fleet is being read. Pure functions of the
states that the commit changes. Machines that are removed are checked where that is decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from forewarn.core import Group, Machine, Refused
from forewarn.core.commands import Define
from forewarn.core.deciding.define import merged_machine
from forewarn.core.fleet import Host
from forewarn.core.refusal import Hint, conflict
from forewarn.core.registry import HostPut, HostRemoved, Put
from forewarn.service.fleet.diff import BlockingEvent, about_hosts, with_declared
from forewarn.service.platform.host_state import (
    unannounced_warning,
    uncertain_warning,
    unhealthy_warning,
)
from forewarn.store.port import States
from forewarn.support.text import listing


def with_current_hosts(puts: Sequence[Put], hosts: Mapping[str, Host], by: str) -> tuple[Put, ...]:
    """Return the puts with the hosts as they are now, apart from what a fleet file says."""
    return tuple(_with_current(put, hosts, by) for put in puts)


def _with_current(put: Put, hosts: Mapping[str, Host], by: str) -> Put:
    if isinstance(put, HostPut) and (current := hosts.get(put.host.name)) is not None:
        return HostPut(with_declared(current, put.host), by)
    return msgspec.structs.replace(put, by=by)


def changes_since(
    states: States,
    groups: Mapping[str, Group],
    defines: Mapping[str, Define],
    puts: Sequence[Put],
) -> tuple[tuple[BlockingEvent, ...], tuple[str, ...]]:
    """Return the events about hosts that are removed, and the machines that are, or would stay, on
    one. Only groups that have changed since `groups` are read."""
    removed = {put.name for put in puts if isinstance(put, HostRemoved)}
    if not removed:
        return (), ()
    now: dict[str, Group] = {}
    for older in reversed(states.maps):
        now.update(older)
    fresh = [group for name, group in now.items() if groups.get(name) is not group]
    blocked_by = tuple(event for group in fresh for event in about_hosts(group, removed))
    stays = [
        machine.name
        for group in fresh
        for machine in _afterwards(group, defines.get(group.name))
        if machine.host in removed
    ]
    stays += [
        machine.name
        for define in (defines.values() if fresh else ())
        for machine in define.machines
        if machine.host in removed  # moved there, and now to another group as well
    ]
    return blocked_by, tuple(dict.fromkeys(stays))


def _afterwards(group: Group, define: Define | None) -> Iterator[Machine]:
    if define is None:
        yield from group.machines
        return
    current = {machine.name: machine for machine in group.machines}
    for machine in define.machines:
        yield merged_machine(current.get(machine.name), machine, define)


def blocked_by(events: Collection[BlockingEvent]) -> Refused:
    return conflict(
        "hosts or machines would be removed or change their update domain while they have an"
        f" active event: {listing([str(event) for event in events])}; wait, or cancel the events",
        hint=Hint.FORCE,
    )


def stranded(machines: Sequence[str]) -> Refused:
    return conflict(
        f"a host to which machines were moved would be removed: {listing(machines)};"
        " keep the host, or record where these machines are",
        hint=Hint.RECORD_MOVE,
        about=machines[0],
    )


def arrival_warnings(
    defines: Mapping[str, Define],
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
    planned: Collection[str],
) -> tuple[str, ...]:
    """Return warnings about machines that are put on hosts which are not healthy, or for which
    maintenance is planned that does not include them; and about those that might be there."""
    unhealthy = {name: host for name, host in hosts.items() if not host.healthy}
    planned = set(planned) - unhealthy.keys()
    risky = unhealthy.keys() | planned
    if not risky:
        return ()
    arrivals: dict[str, list[str]] = {}
    uncertain: dict[str, list[str]] = {}
    for name, define in defines.items():
        wanted = [machine for machine in define.machines if machine.host in risky]
        group = groups.get(name) if wanted else None
        current = {machine.name: machine for machine in group.machines} if group else {}
        for machine in wanted:
            before = current.get(machine.name)
            after = merged_machine(before, machine, define)
            if not after.alive:
                continue
            if after.host in risky and (before is None or before.host != after.host):
                arrivals.setdefault(after.host, []).append(machine.name)
            if after.disputed in planned and (before is None or not before.disputed):
                uncertain.setdefault(after.disputed, []).append(machine.name)
    notes = []
    for name, machines in arrivals.items():
        if name in unhealthy:
            notes.append(unhealthy_warning(unhealthy[name], machines))
        else:
            notes.append(unannounced_warning(name, machines))
    for name, machines in uncertain.items():
        notes.append(uncertain_warning(name, machines))
    return tuple(notes)

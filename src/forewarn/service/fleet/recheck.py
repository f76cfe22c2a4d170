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
from forewarn.service.fleet.diff import BlockingEvent, about_hosts
from forewarn.service.platform.host_state import unhealthy_warning
from forewarn.store.port import States
from forewarn.support.text import listing


def with_current_hosts(puts: Sequence[Put], hosts: Mapping[str, Host], by: str) -> tuple[Put, ...]:
    """Return the puts with the hosts as they are now, apart from their labels."""
    return tuple(_with_current(put, hosts, by) for put in puts)


def _with_current(put: Put, hosts: Mapping[str, Host], by: str) -> Put:
    if isinstance(put, HostPut) and (current := hosts.get(put.host.name)) is not None:
        return HostPut(msgspec.structs.replace(current, labels=put.host.labels), by)
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
        yield merged_machine(current.get(machine.name), machine)


def blocked_by(events: Collection[BlockingEvent]) -> Refused:
    return conflict(
        "hosts or machines would be removed or change their update domain while they have an"
        f" active event: {listing([str(event) for event in events])}; wait, or cancel the events",
        hint=Hint.FORCE,
    )


def stranded(machines: Sequence[str]) -> Refused:
    return conflict(
        f"a host would be removed to which machines were moved: {listing(machines)};"
        " keep the host, or put them on another one"
    )


def unhealthy_warnings(
    defines: Mapping[str, Define], groups: Mapping[str, Group], hosts: Mapping[str, Host]
) -> tuple[str, ...]:
    """Return a warning for each host that is not healthy and is given machines."""
    unhealthy = {name: host for name, host in hosts.items() if not host.healthy}
    if not unhealthy:
        return ()
    arrivals: dict[str, list[str]] = {}
    for name, define in defines.items():
        wanted = [machine for machine in define.machines if machine.host in unhealthy]
        group = groups.get(name) if wanted else None
        current = {machine.name: machine for machine in group.machines} if group else {}
        for machine in wanted:
            before = current.get(machine.name)
            after = merged_machine(before, machine)
            if (
                after.alive
                and after.host in unhealthy
                and (before is None or before.host != after.host)
            ):
                arrivals.setdefault(after.host, []).append(machine.name)
    return tuple(
        unhealthy_warning(unhealthy[name], machines) for name, machines in arrivals.items()
    )

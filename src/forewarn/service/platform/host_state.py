"""Helpers of the verbs for hosts: affected machines, and checks in the commit.

While a driver is asked, a host may fail, be removed or be given other labels, and machines come and
go. So everything that a verb relies on is checked again on the states that its commit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from forewarn.core import Group, Machine, Refused, Status
from forewarn.core.fleet import REVOKED, Health, Host
from forewarn.core.refusal import Hint, conflict, unknown
from forewarn.core.registry import HostPut, Put
from forewarn.core.time import Time
from forewarn.service.engine.writer import Check
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store.port import States, Store
from forewarn.support.text import listing

Affected: TypeAlias = list[tuple[Group, list[Machine]]]


# The machines on a host.


def affected_by(store: Store, host_index: HostIndex, host: str) -> Affected:
    """Return the machines on a host, by group, without those whose delete has started."""
    affected = []
    for name in host_index.groups_on(host):
        group = store.groups[name]
        leaving = _leaving(store.groups, [name])
        machines = [
            machine
            for machine in group.machines
            if machine.host == host and machine.alive and (name, machine.name) not in leaving
        ]
        if machines:
            affected.append((group, machines))
    return affected


def placement_problem(host_index: HostIndex, host: str) -> Refused | None:
    """Refuse to work on a host while it is disputed whether a machine is on it."""
    disputed = host_index.disputed_on(host)
    if not disputed:
        return None
    seen = {found.machine: listing(found.hosts) for found in host_index.sightings.disputed_on(host)}
    where = [
        f"{m.name} ({_evidence(m)}: {m.disputed or seen.get(m.name, '')}, known: {m.host})"
        for m in disputed
    ]
    return conflict(
        f"it is not certain which machines are on host '{host}', because a fleet file, or where"
        " they poll or were seen, contradicts where they are known to be:"
        f" {listing(where)}; a machine on it might not be warned",
        hint=Hint.RECORD_MOVE,
        about=disputed[0].name,
    )


def _evidence(machine: Machine) -> str:
    if not machine.disputed:
        return "seen on"
    return "polls on" if machine.disputed_by_poll else "file"


def disputed_notes(host_index: HostIndex, host: str) -> tuple[str, ...]:
    """Return the same as a note, for what cannot wait."""
    problem = placement_problem(host_index, host)
    return () if problem is None else (problem.message,)


def not_enabled(affected: Affected) -> tuple[str, ...]:
    """Return a note for the caller about groups that cannot approve, because they do not listen."""
    disabled = [group.name for group, _ in affected if not group.enabled]
    if not disabled:
        return ()
    return (
        f"these groups are not enabled, and cannot approve until they poll: {listing(disabled)}",
    )


def machines_changed(
    host_index: HostIndex, host: str, affected: Affected, *, also_planned: bool = False
) -> Check:
    """Return a check that refuses if a machine came or went, or if something has been planned for
    the host meanwhile; `also_planned` allows the latter."""
    expected = {(g.name, m.name) for g, machines in affected for m in machines}

    def check(states: States) -> Refused | None:
        # The index knows of machines that came while the driver was asked, but not of those that
        # came in this very batch.
        groups = {group.name for group, _ in affected} | set(states.maps[0])
        groups |= set(host_index.groups_on(host))
        present = {
            (group, machine.name)
            for group in groups
            for machine in states[group].machines
            if machine.host == host and machine.alive
        }
        planned = any(e.host == host for group in groups for e in states[group].events)
        same = expected <= present and present - expected <= _leaving(states, groups)
        if same and (also_planned or not planned):
            return None
        return conflict(
            f"host '{host}' has just been changed by somebody else; check it and try again"
        )

    return check


def _leaving(states: Mapping[str, Group], groups: Iterable[str]) -> set[tuple[str, str]]:
    """Return the machines whose delete has started."""
    return {
        (group, machine)
        for group in groups
        for event in states[group].events
        if event.traits.deletes and event.status is Status.STARTED
        for machine in event.resources
    }


# The health of a host.


def health_problem(host: Host, health: Health) -> Refused | None:
    """Refuse a change of health that would be none."""
    match health:
        case Health.HEALTHY if host.healthy:
            return conflict(f"host '{host.name}' is healthy; there is nothing to repair")
        case Health.DEGRADED if host.health is Health.DEGRADED:
            return conflict(f"host '{host.name}' is already degraded")
        case Health.DEGRADED | Health.FAILED if host.health is Health.FAILED:
            return conflict(f"host '{host.name}' has already failed")
    return None


def health_check(name: str, health: Health) -> Check:
    """Return a check that refuses if the host is gone, or can no longer change to this health."""

    def check(states: States) -> Refused | None:
        refused = known_check(name)(states)
        return refused or health_problem(states.registry.hosts[name], health)

    return check


def unchanged_check(read: Host) -> Check:
    """Return a check that refuses if the host's health has changed since it was read."""

    def check(states: States) -> Refused | None:
        host = states.registry.hosts.get(read.name)
        if host is not None and (host.health, host.since) == (read.health, read.since):
            return None
        return conflict(
            f"host '{read.name}' has just been changed by somebody else; check it and try again"
        )

    return check


def first_refusal(*checks: Check) -> Check:
    """Combine checks: the first refusal counts."""
    return lambda states: next((refused for check in checks if (refused := check(states))), None)


def with_health(
    name: str, health: Health, by: str, note: str, now: Callable[[], Time]
) -> Callable[[States], Sequence[Put]]:
    """Return a function that stores the host with another health and otherwise as it is."""

    def put(states: States) -> Sequence[Put]:
        host = states.registry.hosts[name]
        return (HostPut(msgspec.structs.replace(host, health=health, since=now(), note=note), by),)

    return put


def with_cordon(
    name: str, by: str, *, note: str = "", default_note: str = ""
) -> Callable[[States], Sequence[Put]]:
    """Return a function that stores the host as cordoned and otherwise as it is. A host that is
    cordoned keeps its note unless there is another one."""

    def put(states: States) -> Sequence[Put]:
        host = states.registry.hosts[name]
        reason = note or host.cordon_note or ("" if host.cordoned else default_note)
        cordoned = msgspec.structs.replace(host, cordoned=True, cordon_note=reason)
        return () if cordoned == host else (HostPut(cordoned, by),)

    return put


def with_node(name: str, by: str, *, node: bool) -> Callable[[States], Sequence[Put]]:
    """Return a function that stores whether a host is expected to have a node, if that is new. A
    token that the node did not need is not valid any more."""

    def put(states: States) -> Sequence[Put]:
        host = states.registry.hosts[name]
        if host.node is node:
            return ()
        used = host.enrollment if host.enrollment and host.enrollment.used_from else None
        return (HostPut(msgspec.structs.replace(host, node=node, enrollment=used), by),)

    return put


def revoked(name: str, by: str) -> Callable[[States], Sequence[Put]]:
    """Return a function that stores that no certificate and no token is valid for a host."""

    def put(states: States) -> Sequence[Put]:
        host = states.registry.hosts[name]
        changed = msgspec.structs.replace(
            host, node_key=REVOKED, driver_key=REVOKED, enrollment=None
        )
        return () if changed == host else (HostPut(changed, by),)

    return put


def known_check(name: str) -> Check:
    """Return a check that refuses if the host is gone."""

    def check(states: States) -> Refused | None:
        if name in states.registry.hosts:
            return None
        return unknown(f"host '{name}' has just been removed")

    return check


def host_of_gone(states: States, group: str, machine: str) -> Host | None:
    """Return the host that a gone machine would be on again; None if the machine is not gone."""
    record = states[group].machine(machine)
    return None if record is None or record.alive else states.registry.hosts.get(record.host)


def unhealthy_warning(host: Host, machines: Sequence[str]) -> str:
    """Warn a caller who puts machines on a host that is not healthy."""
    state = "has failed" if host.health is Health.FAILED else f"is {host.health.value}"
    return (
        f"host '{host.name}' {state}, and no event announces this to {listing(machines)}: repair"
        " the host, or put its machines on another one"
    )


def unannounced_warning(host: str, machines: Sequence[str]) -> str:
    """Warn a caller who puts machines on a host for which maintenance is planned."""
    return (
        f"maintenance of host '{host}' is planned or under way, and has not been announced to"
        f" {listing(machines)}: cancel it and plan it again, or put the machines on another host"
    )


def uncertain_warning(host: str, machines: Sequence[str]) -> str:
    """Warn a caller whose file names a host for which maintenance is planned."""
    return (
        f"maintenance of host '{host}' is planned or under way, and has not been announced to"
        f" {listing(machines)}, which the file puts there: record where each of them is, and if one"
        " is there, cancel the maintenance and plan it again"
    )

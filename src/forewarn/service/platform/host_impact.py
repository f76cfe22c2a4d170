"""Who is affected by what happens to a host, and whether that is still so when it is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from forewarn.core import Group, Machine, Refused, Status
from forewarn.core.refusal import conflict
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store.port import States, Store
from forewarn.support.text import listing

Affected: TypeAlias = list[tuple[Group, list[Machine]]]


def affected_by(store: Store, host_index: HostIndex, host: str) -> Affected:
    """By group: the machines on it that are not on their way out."""
    found = []
    for name in host_index.groups_on(host):
        group = store.groups[name]
        leaving = _leaving(store.groups, [name])
        there = [
            machine
            for machine in group.machines
            if machine.host == host and machine.alive and (name, machine.name) not in leaving
        ]
        if there:
            found.append((group, there))
    return found


def not_listening(affected: Affected) -> tuple[str, ...]:
    """A note for whoever asked: these have no vote."""
    silent = [group.name for group, _ in affected if not group.enabled]
    if not silent:
        return ()
    return (f"not listening, so without a vote until they ask: {listing(silent)}",)


def changed(
    host_index: HostIndex, host: str, affected: Affected, *, also_planned: bool = False
) -> Callable[[States], Refused | None]:
    """Refuses, in the moment of the commit, if somebody was quicker: a machine came or went, or
    something was planned for the host meanwhile."""
    expected = {(g.name, m.name) for g, machines in affected for m in machines}

    def look(states: States) -> Refused | None:
        # Who came while the driver was asked is in the index; who came in this very batch is not.
        groups = {group.name for group, _ in affected} | set(states.maps[0])
        groups |= set(host_index.groups_on(host))
        there = {
            (group, machine.name)
            for group in groups
            for machine in states[group].machines
            if machine.host == host and machine.alive
        }
        planned = any(e.host == host for group in groups for e in states[group].events)
        same = expected <= there and there - expected <= _leaving(states, groups)
        if same and (also_planned or not planned):
            return None
        return conflict(f"host '{host}' has changed in this very moment; look, and try again")

    return look


def _leaving(states: Mapping[str, Group], groups: Iterable[str]) -> set[tuple[str, str]]:
    """Machines whose delete has started."""
    return {
        (group, machine)
        for group in groups
        for event in states[group].events
        if event.promise.deletes and event.status is Status.STARTED
        for machine in event.resources
    }

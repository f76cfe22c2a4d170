"""From a selection to lanes and steps: which machines, in which order, and which together.

If groups or labels are selected, a lane is a group and a step is one of its update domains; hosts
in the same selection limit it to the machines on them. If only hosts are selected, each host with
all its machines is a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from forewarn.core.events import EventType, types_that
from forewarn.core.fleet import Host, Machine
from forewarn.core.group import Group
from forewarn.core.labels import Selector, labels_of, matches
from forewarn.core.refusal import Hint, Refused, conflict, invalid, unknown
from forewarn.core.rollouts.model import Lane, Step, prefix
from forewarn.support.suggest import instead_of
from forewarn.support.text import listing

MAX_STEPS = 2_000  # of one rollout
MAX_SELECTED = 100  # groups, selectors and hosts in one selection

HOST_TYPES = types_that(lambda traits: traits.host_maintenance)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[str, ...] = ()
    labels: tuple[Selector, ...] = ()  # one of them must match
    hosts: tuple[str, ...] = ()  # names, or patterns with * and ?

    @property
    def hosts_alone(self) -> bool:
        return bool(self.hosts) and not self.groups and not self.labels

    def __str__(self) -> str:
        parts = [f"group {name}" for name in self.groups]
        parts += ["label " + ",".join(map(str, selector)) for selector in self.labels]
        parts += [f"host {name}" for name in self.hosts]
        return ", ".join(parts)


def lanes(
    id: str,
    type: EventType,
    selection: Selection,
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
) -> tuple[Lane, ...] | Refused:
    """Return the lanes of a rollout with this id and selection."""
    named = len(selection.groups) + len(selection.labels) + len(selection.hosts)
    if not named:
        return invalid("a rollout needs a selection of groups, labels or hosts", hint=Hint.SELECT)
    if named > MAX_SELECTED:
        return invalid(f"a selection names at most {MAX_SELECTED} groups, labels and hosts")
    if type.traits.deletes:
        kinds = listing([t.value for t in types_that(lambda traits: not traits.deletes)])
        return invalid(
            f"a rollout cannot be a {type.value}, which deletes its machines; expected one of"
            f" {kinds}"
        )
    host_names = _hosts(selection, hosts)
    if isinstance(host_names, Refused):
        return host_names
    result = (
        _host_lanes(id, type, host_names, groups.values())
        if selection.hosts_alone
        else _group_lanes(id, selection, groups, frozenset(host_names))
    )
    if isinstance(result, Refused):
        return result
    if not result:
        return invalid(f"no machine is selected by {selection}")
    if (count := sum(len(lane.steps) for lane in result)) > MAX_STEPS:
        return invalid(
            f"{selection} selects {count} steps; a rollout has at most {MAX_STEPS}:"
            " start several, one after the other"
        )
    return result


def _hosts(selection: Selection, hosts: Mapping[str, Host]) -> tuple[str, ...] | Refused:
    names: dict[str, None] = {}
    for wanted in selection.hosts:
        matching = [name for name in hosts if name == wanted or fnmatchcase(name, wanted)]
        if not matching:
            return unknown(f"no host '{wanted}'; {instead_of(wanted, hosts)}")
        names |= dict.fromkeys(sorted(matching))
    return tuple(names)


def _host_lanes(
    id: str, type: EventType, names: tuple[str, ...], groups: Iterable[Group]
) -> tuple[Lane, ...] | Refused:
    if type not in HOST_TYPES:
        kinds = listing([t.value for t in HOST_TYPES])
        return invalid(
            f"the maintenance of a host cannot be a {type.value}; expected one of {kinds}"
        )
    machines_by_host: dict[str, list[str]] = {}
    domains: dict[tuple[str, str], Machine] = {}
    for group in groups:
        for machine in group.machines:
            if not machine.alive:
                continue
            machines_by_host.setdefault(machine.host, []).append(machine.name)
            first = domains.setdefault((machine.host, group.name), machine)
            if first.update_domain != machine.update_domain and machine.host in names:
                return conflict(
                    f"maintenance of host '{machine.host}' affects all its machines at once, but"
                    f" group '{group.name}' has machines of two update domains on it:"
                    f" '{first.name}' of {first.update_domain} and '{machine.name}' of"
                    f" {machine.update_domain}; move one of them to another host first, or leave"
                    " the host out"
                )
    return tuple(
        Lane(
            name=name,
            steps=(Step(cause=f"{prefix(id)}host/{name}", host=name, machines=tuple(machines)),),
        )
        for name in names
        if (machines := machines_by_host.get(name))
    )


def _group_lanes(
    id: str, selection: Selection, groups: Mapping[str, Group], hosts: frozenset[str]
) -> tuple[Lane, ...] | Refused:
    wanted = selection.groups or tuple(groups)
    for name in selection.groups:
        if name not in groups or not groups[name].machines:
            names = [group.name for group in groups.values() if group.machines]
            return unknown(f"no group '{name}'; {instead_of(name, names)}")
    lanes = []
    for name in dict.fromkeys(wanted):
        group = groups[name]
        domains: dict[int, list[str]] = {}
        for machine in group.machines:
            if machine.alive and _selected(selection, group, machine, hosts):
                domains.setdefault(machine.update_domain, []).append(machine.name)
        steps = tuple(
            Step(
                cause=f"{prefix(id)}{name}/{domain}",
                group=name,
                domain=domain,
                machines=tuple(domains[domain]),
            )
            for domain in sorted(domains)
        )
        if steps:
            lanes.append(Lane(name=name, steps=steps))
    return tuple(lanes)


def _selected(selection: Selection, group: Group, machine: Machine, hosts: frozenset[str]) -> bool:
    if hosts and machine.host not in hosts:
        return False
    if not selection.labels:
        return True
    labels = labels_of(group, machine)
    return any(matches(selector, labels) for selector in selection.labels)

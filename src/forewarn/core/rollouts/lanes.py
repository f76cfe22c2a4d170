"""From a selection to lanes: who goes, in which order, and what goes at once.

Groups and labels select machines; a lane is then a group and a step one of its update domains.
Hosts alone are lanes themselves, each with whatever is on it. Hosts beside groups or labels
narrow these to the machines on them.
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
from forewarn.support.text import listing

MAX_STEPS = 2_000  # of one rollout
MAX_SELECTED = 100  # groups, selectors and hosts that a selection names

HOST_TYPES = types_that(lambda traits: traits.host_maintenance)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[str, ...] = ()
    labels: tuple[Selector, ...] = ()  # one of them must match
    hosts: tuple[str, ...] = ()  # names, or patterns with * and ?

    @property
    def hosts_alone(self) -> bool:
        return bool(self.hosts) and not self.groups and not self.labels

    def __str__(self) -> str:
        words = [f"group {name}" for name in self.groups]
        words += ["label " + ",".join(map(str, selector)) for selector in self.labels]
        words += [f"host {name}" for name in self.hosts]
        return ", ".join(words)


def lanes(
    id: str,
    type: EventType,
    selection: Selection,
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
) -> tuple[Lane, ...] | Refused:
    named = len(selection.groups) + len(selection.labels) + len(selection.hosts)
    if not named:
        return invalid("a rollout needs a selection of groups, labels or hosts", hint=Hint.SELECT)
    if named > MAX_SELECTED:
        return invalid(f"a selection names at most {MAX_SELECTED} groups, labels and hosts")
    if type.traits.deletes:
        kinds = listing([t.value for t in types_that(lambda traits: not traits.deletes)])
        return invalid(f"a rollout is of {kinds}; a {type.value} deletes its machines")
    on = _hosts(selection, hosts)
    if isinstance(on, Refused):
        return on
    found = (
        _of_hosts(id, type, on, groups.values())
        if selection.hosts_alone
        else _of_groups(id, selection, groups, frozenset(on))
    )
    if isinstance(found, Refused):
        return found
    if not found:
        return invalid(f"no machine is selected by {selection}")
    if (count := sum(len(lane.steps) for lane in found)) > MAX_STEPS:
        return invalid(
            f"{selection} selects {count} steps; a rollout has at most {MAX_STEPS}:"
            " make several, one after the other"
        )
    return found


def _hosts(selection: Selection, hosts: Mapping[str, Host]) -> tuple[str, ...] | Refused:
    found: dict[str, None] = {}
    for wanted in selection.hosts:
        matching = [name for name in hosts if name == wanted or fnmatchcase(name, wanted)]
        if not matching:
            return unknown(f"no host '{wanted}'; there are {listing(sorted(hosts))}")
        found |= dict.fromkeys(sorted(matching))
    return tuple(found)


def _of_hosts(
    id: str, type: EventType, names: tuple[str, ...], groups: Iterable[Group]
) -> tuple[Lane, ...] | Refused:
    if type not in HOST_TYPES:
        kinds = listing([t.value for t in HOST_TYPES])
        return invalid(f"the maintenance of a host is a {kinds}, not a {type.value}")
    there: dict[str, list[str]] = {}
    domains: dict[tuple[str, str], Machine] = {}
    for group in groups:
        for machine in group.machines:
            if not machine.alive:
                continue
            there.setdefault(machine.host, []).append(machine.name)
            first = domains.setdefault((machine.host, group.name), machine)
            if first.update_domain != machine.update_domain and machine.host in names:
                return conflict(
                    f"host '{machine.host}' is worked on once, but group '{group.name}' has"
                    f" machines of two update domains on it: '{first.name}' of"
                    f" {first.update_domain} and '{machine.name}' of {machine.update_domain};"
                    " move one of them away first, or leave the host out"
                )
    return tuple(
        Lane(
            name=name,
            steps=(Step(cause=f"{prefix(id)}host/{name}", host=name, machines=tuple(machines)),),
        )
        for name in names
        if (machines := there.get(name))
    )


def _of_groups(
    id: str, selection: Selection, groups: Mapping[str, Group], hosts: frozenset[str]
) -> tuple[Lane, ...] | Refused:
    wanted = selection.groups or tuple(groups)
    for name in selection.groups:
        if name not in groups or not groups[name].machines:
            known = [group.name for group in groups.values() if group.machines]
            return unknown(f"no group '{name}'; there are {listing(known)}")
    found = []
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
            found.append(Lane(name=name, steps=steps))
    return tuple(found)


def _selected(selection: Selection, group: Group, machine: Machine, hosts: frozenset[str]) -> bool:
    if hosts and machine.host not in hosts:
        return False
    if not selection.labels:
        return True
    labels = labels_of(group, machine)
    return any(matches(selector, labels) for selector in selection.labels)

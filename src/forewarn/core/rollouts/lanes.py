"""From a selection to lanes and steps: which machines, in which order, and which together.

If only hosts are selected, each host with all its machines is a lane. Otherwise a lane is a group
and a step is one of its update domains, with the machines that are selected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from forewarn.core.events import EventType, types_that
from forewarn.core.fleet import Host, domain_name
from forewarn.core.group import Group
from forewarn.core.refusal import Hint, Refused, conflict, invalid
from forewarn.core.rollouts.model import (
    EVACUATE_WORK_RETURN,
    LIVE_MIGRATION,
    Action,
    Conflicts,
    Lane,
    Step,
    prefix,
)
from forewarn.core.rollouts.selection import Scope, Selection, resolve
from forewarn.support.text import counted, listing

HOST_TYPES = types_that(lambda traits: traits.host_maintenance)


class Conflict(msgspec.Struct, frozen=True):
    """A host with machines of several update domains of one group."""

    host: str
    group: str
    machines: tuple[tuple[int, tuple[str, ...]], ...]  # by update domain

    def __str__(self) -> str:
        domains = [f"{listing(names)} of {domain_name(domain)}" for domain, names in self.machines]
        return f"host '{self.host}': group '{self.group}' has {' and '.join(domains)}"


class Lanes(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of a rollout, and the conflicts on its hosts."""

    lanes: tuple[Lane, ...]
    conflicts: tuple[Conflict, ...] = ()
    skipped: tuple[str, ...] = ()  # causes of steps that are left out because of conflicts


def lanes(
    id: str,
    type: EventType,
    selection: Selection,
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
    *,
    moves: bool = False,
    works: bool = False,
    conflicts: Conflicts = Conflicts.REFUSE,
    order_by: Sequence[str] = (),
) -> Lanes | Refused:
    """Return the lanes of a rollout with this id and selection. Conflicts that are to be refused
    are returned: see `conflicts_problem`. Live migrations (`moves`) can always be split, and hosts
    that are emptied for work on them (`works`) have no conflicts."""
    if selection.empty:
        return invalid(
            "a rollout needs a selection of groups, labels, machines or hosts", hint=Hint.SELECT
        )
    if type.traits.deletes:
        kinds = listing([t.value for t in types_that(lambda traits: not traits.deletes)])
        return invalid(
            f"a rollout cannot be a {type.value}, which deletes its machines; expected one of"
            f" {kinds}"
        )
    scope = resolve(selection, groups, hosts)
    if isinstance(scope, Refused):
        return scope
    if (moves or works) and not selection.hosts_alone:
        return invalid(
            "live migrations are rolled out host by host: select only hosts or host labels"
        )
    if moves and conflicts in (Conflicts.REFUSE, Conflicts.EVACUATE):
        conflicts = Conflicts.SPLIT
    if selection.hosts_alone:
        result = _host_lanes(id, type, scope, groups.values(), conflicts, works)
        labels = {name: host.labels for name, host in hosts.items()}
    else:
        result = Lanes(lanes=_group_lanes(id, selection, scope, groups))
        labels = {name: group.labels for name, group in groups.items()}
    if isinstance(result, Refused):
        return result
    if not result.lanes:
        return invalid(f"no machine is selected by {selection}")
    ordered = sorted(result.lanes, key=lambda lane: _label_order(labels[lane.name], order_by))
    return msgspec.structs.replace(result, lanes=tuple(ordered))


def conflicts_problem(conflicts: Sequence[Conflict]) -> Refused | None:
    """Refuse conflicts for which nobody has said what to do, all at once."""
    if not conflicts:
        return None
    hosts = len({conflict.host for conflict in conflicts})
    return conflict(
        f"this rollout includes {counted(hosts, 'host')} with machines of several update domains of"
        " one group, which must not be disturbed at the same time: split the maintenance of such"
        " hosts by update domain, skip them, or evacuate them first",
        hint=Hint.CONFLICTS,
        others=tuple(conflict(str(found), field=found.host) for found in conflicts),
    )


def _host_lanes(
    id: str,
    type: EventType,
    scope: Scope,
    groups: Iterable[Group],
    conflicts: Conflicts,
    works: bool,
) -> Lanes | Refused:
    if type not in HOST_TYPES:
        kinds = listing([*(t.value for t in HOST_TYPES), LIVE_MIGRATION, EVACUATE_WORK_RETURN])
        return invalid(
            f"the maintenance of a host cannot be a {type.value}; expected one of {kinds}"
        )
    machines: dict[str, dict[str, dict[int, list[str]]]] = {name: {} for name in scope.hosts}
    excluded: set[str] = set()
    for group in groups:
        for machine in group.machines:
            if not machine.alive or machine.host not in machines:
                continue
            if scope.excludes(group, machine):
                excluded.add(machine.host)
            domains = machines[machine.host].setdefault(group.name, {})
            domains.setdefault(machine.domain, []).append(machine.name)
    lanes: list[Lane] = []
    found: list[Conflict] = []
    skipped: list[str] = []
    for host, by_group in machines.items():
        if host in excluded or not (by_group or works):
            continue
        if works:
            lanes.append(Lane(name=host, steps=_work_steps(id, host, by_group)))
            continue
        clashes = [
            Conflict(host, group, tuple((d, tuple(domains[d])) for d in sorted(domains)))
            for group, domains in by_group.items()
            if len(domains) > 1
        ]
        found += clashes
        steps = _host_steps(id, host, by_group, conflicts if clashes else Conflicts.REFUSE)
        lanes.append(Lane(name=host, steps=steps))
        if clashes and conflicts is Conflicts.SKIP:
            skipped += [step.cause for step in steps]
    return Lanes(lanes=tuple(lanes), conflicts=tuple(found), skipped=tuple(skipped))


def steps_of(id: str, host: str, groups: Iterable[Group], conflicts: Conflicts) -> tuple[Step, ...]:
    """Return the steps of a host with a conflict, with the machines that are on it now."""
    by_group: dict[str, dict[int, list[str]]] = {}
    for group in groups:
        for machine in group.machines:
            if machine.alive and machine.host == host:
                domains = by_group.setdefault(group.name, {})
                domains.setdefault(machine.domain, []).append(machine.name)
    return _host_steps(id, host, by_group, conflicts)


def crowding(by_group: Mapping[str, Mapping[int, Sequence[str]]]) -> tuple[str, ...]:
    """Return the machines that have to leave a host, so that only one update domain of each group
    is left: the one with the most machines."""
    return tuple(
        name
        for domains in by_group.values()
        for domain in sorted(domains)
        if domain != min(domains, key=lambda other: (-len(domains[other]), other))
        for name in domains[domain]
    )


def _work_steps(
    id: str, host: str, by_group: Mapping[str, Mapping[int, list[str]]]
) -> tuple[Step, ...]:
    cause = f"{prefix(id)}host/{host}"
    return (
        Step(
            cause=f"{cause}/{Action.EVACUATION.value}",
            host=host,
            machines=_names(by_group),
            action=Action.EVACUATION,
        ),
        Step(cause=f"{cause}/{Action.WORK.value}", host=host, action=Action.WORK),
    )


def _names(by_group: Mapping[str, Mapping[int, list[str]]]) -> tuple[str, ...]:
    return tuple(n for domains in by_group.values() for names in domains.values() for n in names)


def _host_steps(
    id: str, host: str, by_group: Mapping[str, Mapping[int, list[str]]], conflicts: Conflicts
) -> tuple[Step, ...]:
    cause = f"{prefix(id)}host/{host}"
    if conflicts is Conflicts.EVACUATE:
        leaving = crowding(by_group)
        staying = tuple(name for name in _names(by_group) if name not in leaving)
        evacuation = Step(
            cause=f"{cause}/{Action.EVACUATION.value}",
            host=host,
            machines=leaving,
            action=Action.EVACUATION,
        )
        return evacuation, Step(cause=cause, host=host, machines=staying)
    if conflicts is not Conflicts.SPLIT:
        return (Step(cause=cause, host=host, machines=_names(by_group)),)
    return tuple(
        Step(
            cause=f"{cause}/{domain_name(domain)}",
            host=host,
            split=True,
            domain=domain,
            machines=tuple(n for domains in by_group.values() for n in domains.get(domain, ())),
        )
        for domain in sorted({domain for domains in by_group.values() for domain in domains})
    )


def _group_lanes(
    id: str, selection: Selection, scope: Scope, groups: Mapping[str, Group]
) -> tuple[Lane, ...]:
    lanes = []
    for name in dict.fromkeys(selection.groups or groups):
        group = groups[name]
        domains: dict[int, list[str]] = {}
        for machine in group.machines:
            if machine.alive and scope.has(group, machine):
                domains.setdefault(machine.domain, []).append(machine.name)
        steps = tuple(
            Step(
                cause=f"{prefix(id)}{name}/{domain_name(domain)}",
                group=name,
                domain=domain,
                machines=tuple(domains[domain]),
            )
            for domain in sorted(domains)
        )
        if steps:
            lanes.append(Lane(name=name, steps=steps))
    return tuple(lanes)


def _label_order(labels: Mapping[str, str], names: Sequence[str]) -> tuple[object, ...]:
    """Return the sort key of a lane by the values of labels: numbers in them by their value, and
    lanes without the label last."""
    return tuple(
        (
            name not in labels,
            [
                (not part.isdigit(), int(part) if part.isdigit() else part)
                for part in re.split(r"(\d+)", labels.get(name, ""))
                if part
            ],
        )
        for name in names
    )

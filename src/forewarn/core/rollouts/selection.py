"""Which groups, machines and hosts a rollout is about.

Kinds narrow each other: a machine is selected if it is in one of the groups, has one of the labels,
is one of the machines, and is on one of the hosts, as far as any are given. Exclusions then remove
from that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

import msgspec

from forewarn.core.fleet import Host, Machine
from forewarn.core.group import Group
from forewarn.core.labels import Selector, labels_of, matches
from forewarn.core.refusal import Refused, invalid, unknown
from forewarn.support.limits import MAX_SELECTED
from forewarn.support.suggest import instead_of

_OPTIONS = {
    "groups": "group",
    "labels": "label",
    "machines": "machine",
    "hosts": "host",
    "host_labels": "host label",
}


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Machines and hosts are names, or patterns with * and ?; of several labels, one must match."""

    groups: tuple[str, ...] = ()
    labels: tuple[Selector, ...] = ()
    machines: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    host_labels: tuple[Selector, ...] = ()
    exclude_groups: tuple[str, ...] = ()
    exclude_labels: tuple[Selector, ...] = ()
    exclude_machines: tuple[str, ...] = ()
    exclude_hosts: tuple[str, ...] = ()
    exclude_host_labels: tuple[Selector, ...] = ()

    @property
    def empty(self) -> bool:
        return not any(getattr(self, field) for field in _OPTIONS)

    @property
    def exclusions(self) -> Exclusions:
        return Exclusions(**{field: getattr(self, f"exclude_{field}") for field in _OPTIONS})

    @property
    def hosts_alone(self) -> bool:
        """Is it about hosts, with whatever is on them?"""
        about_hosts = bool(self.hosts or self.host_labels)
        return about_hosts and not (self.groups or self.labels or self.machines)

    def __str__(self) -> str:
        parts = [
            f"{without}{kind} {_text(item)}"
            for prefix, without in (("", ""), ("exclude_", "without "))
            for field, kind in _OPTIONS.items()
            for item in getattr(self, prefix + field)
        ]
        return ", ".join(parts)


class Exclusions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rollout leaves out, also if it comes to be so while the rollout is under way."""

    groups: tuple[str, ...] = ()
    labels: tuple[Selector, ...] = ()
    machines: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    host_labels: tuple[Selector, ...] = ()

    def __bool__(self) -> bool:
        return self != Exclusions()


class Excluded:
    """Answers what is left out: by its name, its labels, its group or its host."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._exclusions = exclusions
        self._groups = frozenset(exclusions.groups)
        self._machines = _Names(exclusions.machines)
        self._hosts = _Names(exclusions.hosts)

    def machine(self, group: Group, machine: Machine) -> bool:
        """Is this machine left out, whatever host it is on?"""
        if group.name in self._groups or machine.name in self._machines:
            return True
        labels = self._exclusions.labels
        return bool(labels) and _any(labels, labels_of(group, machine))

    def host(self, host: Host) -> bool:
        """Is this host left out, whatever is on it?"""
        return host.name in self._hosts or _any(self._exclusions.host_labels, host.labels)


class Scope:
    """A selection, resolved against a fleet: the hosts it names, and whether it has a machine."""

    def __init__(
        self,
        selection: Selection,
        selected: tuple[str, ...],
        excluded_hosts: frozenset[str],
    ) -> None:
        self._selection, self._excluded_hosts = selection, excluded_hosts
        self._excluded = Excluded(selection.exclusions)
        self.hosts = tuple(name for name in selected if name not in excluded_hosts)
        self._narrowed = frozenset(self.hosts) if selection.hosts or selection.host_labels else None
        self._machines = _Names(selection.machines)

    def has(self, group: Group, machine: Machine) -> bool:
        """Is this machine selected?"""
        selection = self._selection
        if self._narrowed is not None and machine.host not in self._narrowed:
            return False
        if machine.host in self._excluded_hosts or self.excludes(group, machine):
            return False
        if selection.machines and machine.name not in self._machines:
            return False
        return not selection.labels or _any(selection.labels, labels_of(group, machine))

    def excludes(self, group: Group, machine: Machine) -> bool:
        """Is this machine left out, by its name, its labels or its group?"""
        return self._excluded.machine(group, machine)


def resolve(
    selection: Selection, groups: Mapping[str, Group], hosts: Mapping[str, Host]
) -> Scope | Refused:
    """Resolve a selection, or refuse a name that does not exist."""
    for field in (*_OPTIONS, *(f"exclude_{field}" for field in _OPTIONS)):
        if len(getattr(selection, field)) > MAX_SELECTED:
            return invalid(f"a selection can have at most {MAX_SELECTED} {field.replace('_', ' ')}")
    populated = [group.name for group in groups.values() if group.machines]
    for name in (*selection.groups, *selection.exclude_groups):
        if name not in groups or not groups[name].machines:
            return unknown(f"no group '{name}'; {instead_of(name, populated)}")
    wanted = (*selection.machines, *selection.exclude_machines)
    if problem := _unknown_machine(wanted, groups) if wanted else None:
        return problem
    selected = _matching(selection.hosts, hosts) if selection.hosts else tuple(sorted(hosts))
    if isinstance(selected, Refused):
        return selected
    if isinstance(left_out := _matching(selection.exclude_hosts, hosts), Refused):
        return left_out
    if selection.host_labels:
        labels = selection.host_labels
        selected = tuple(name for name in selected if _any(labels, hosts[name].labels))
    excluded = Excluded(selection.exclusions)
    excluded_hosts = frozenset(name for name, host in hosts.items() if excluded.host(host))
    return Scope(selection, selected, excluded_hosts)


def _matching(wanted: Iterable[str], hosts: Mapping[str, Host]) -> tuple[str, ...] | Refused:
    """Return the hosts with these names or patterns, in the order given."""
    names: dict[str, None] = {}
    for name in wanted:
        matching = [name] if name in hosts else sorted(h for h in hosts if fnmatchcase(h, name))
        if not matching:
            return unknown(f"no host '{name}'; {instead_of(name, hosts)}")
        names |= dict.fromkeys(matching)
    return tuple(names)


def _unknown_machine(wanted: Collection[str], groups: Mapping[str, Group]) -> Refused | None:
    machines = {m.name: None for group in groups.values() for m in group.machines if m.alive}
    for name in wanted:
        if name not in machines and not any(fnmatchcase(m, name) for m in machines):
            return unknown(f"no machine '{name}'; {instead_of(name, machines)}")
    return None


class _Names:
    """Names, and patterns with * and ?."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._names = frozenset(wanted)
        self._patterns = [name for name in self._names if any(char in name for char in "*?[")]

    def __contains__(self, name: str) -> bool:
        return name in self._names or any(fnmatchcase(name, p) for p in self._patterns)


def _any(selectors: Iterable[Selector], labels: Mapping[str, str]) -> bool:
    return any(matches(selector, labels) for selector in selectors)


def _text(item: str | Selector) -> str:
    return item if isinstance(item, str) else ",".join(map(str, item))

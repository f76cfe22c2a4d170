"""The difference between the inventory and a fleet.

Pure, so that it can be computed in a thread. What has happened to a machine since it was defined
(an eviction, a delete, a move to another host) is not a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from forewarn.core import Group, Machine
from forewarn.core.commands import Define
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut, HostRemoved, Put
from forewarn.service.fleet.build import Fleet
from forewarn.support.text import in_words

MAX_DETAILED = 1_000  # hosts, groups and machines, each, that are listed one by one

_GROUP_FIELDS = ("kind", "policy", "place", "labels")
_MACHINE_FIELDS = tuple(
    field.name
    for field in msgspec.structs.fields(Machine)
    if field.name not in ("name", "moved_from", "gone")
)


class FieldChange(msgspec.Struct, frozen=True):
    field: str
    before: Any
    after: Any


class DifferenceItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    what: str  # host, group or machine
    action: str  # added, changed, moved or removed
    name: str
    group: str = ""  # of a machine: its new group, or its last one
    previous_group: str = ""  # the group that it leaves
    fields: tuple[FieldChange, ...] = ()


class BlockingEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event because of which something is not removed or moved without `force`."""

    what: str  # host or machine
    name: str
    group: str
    event: str
    type: str
    status: str

    def __str__(self) -> str:
        return f"{self.what} '{self.name}' ({self.type} {self.event}, {self.status})"


class Counts(msgspec.Struct):
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    hosts: Counts
    groups: Counts
    machines: Counts
    items: tuple[DifferenceItem, ...] = ()  # up to MAX_DETAILED of each kind
    omitted: int = 0
    blocked_by: tuple[BlockingEvent, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not any(
            msgspec.structs.astuple(counts) != (0, 0, 0, 0)
            for counts in (self.hosts, self.groups, self.machines)
        )


class Comparison(msgspec.Struct, frozen=True):
    """A difference, and the changes that apply it. Groups that lose machines come first."""

    difference: Difference
    defines: dict[str, Define]
    puts: tuple[Put, ...]
    moved: dict[str, str]  # machines that change groups, and their old groups
    stranded: tuple[str, ...]  # machines that are on a host that is removed


def compare(
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
    fleet: Fleet,
    progress: Callable[[float], None] = lambda _: None,
) -> Comparison:
    comparer = _Comparer(groups, fleet)
    puts = list(comparer.hosts(hosts, fleet.hosts))
    count = max(len(fleet.groups), 1)
    for number, (name, define) in enumerate(fleet.groups.items()):
        comparer.group(name, define)
        progress(number / count)
    for group in groups.values():
        if group.machines and group.name not in fleet.groups:
            comparer.remove_group(group)
    return comparer.result(tuple(puts))


def declared(machine: Machine) -> Machine:
    """Return a machine as it was defined, without what has happened to it since."""
    if not machine.gone and not machine.moved_from:
        return machine
    host = machine.moved_from or machine.host
    return msgspec.structs.replace(machine, host=host, moved_from="", gone="")


def carried(old: Machine, wanted: Machine) -> Machine:
    """Return a machine that moves to another group, with what has happened to it."""
    retained: dict[str, str] = {"gone": old.gone}
    if old.moved_from and old.moved_from == wanted.host:
        retained |= {"host": old.host, "moved_from": old.moved_from}
    return msgspec.structs.replace(wanted, **retained)


class _Comparer:
    def __init__(self, groups: Mapping[str, Group], fleet: Fleet) -> None:
        self._groups = groups
        self._previous_group = {m.name: g.name for g in groups.values() for m in g.machines}
        self._stays = {m.name for define in fleet.groups.values() for m in define.machines}
        self._counts = {"host": Counts(), "group": Counts(), "machine": Counts()}
        self._items: list[DifferenceItem] = []
        self._totals: dict[str, int] = {}
        self._blocked_by: list[BlockingEvent] = []
        self._losing: dict[str, Define] = {}
        self._others: dict[str, Define] = {}
        self._moved: dict[str, str] = {}
        self._removed_hosts: set[str] = set()
        self._stranded: list[str] = []

    def hosts(self, current: Mapping[str, Host], wanted: Iterable[Host]) -> Iterator[Put]:
        names = set()
        for host in wanted:
            names.add(host.name)
            before = current.get(host.name)
            if before is None:
                self._add("host", "added", host.name)
                yield HostPut(host)
            elif before.labels != host.labels:
                fields = (FieldChange("labels", before.labels, host.labels),)
                self._add("host", "changed", host.name, fields=fields)
                yield HostPut(msgspec.structs.replace(before, labels=host.labels))
        removed = [name for name in current if name not in names]
        for name in removed:
            self._add("host", "removed", name)
            yield HostRemoved(name)
        if removed:
            self._removed_hosts = set(removed)
            self._note_host_events()

    def _note_host_events(self) -> None:
        for group in self._groups.values():
            self._blocked_by += about_hosts(group, self._removed_hosts)

    def group(self, name: str, define: Define) -> None:
        before = self._groups.get(name) or Group(name=name)
        fields = tuple(_differing(_GROUP_FIELDS, before, define))
        if not before.machines and define.machines:
            self._add("group", "added", name)
        elif before.machines and not define.machines:
            self._add("group", "removed", name)
        elif fields:
            self._add("group", "changed", name, fields=fields)
        remaining = {machine.name: machine for machine in before.machines}
        differs = bool(fields)
        moved = False
        for machine in define.machines:
            old = remaining.pop(machine.name, None)
            if old is not None:
                if old.moved_from and old.moved_from == machine.host:
                    self._note_if_stranded(old)
                if old != machine and (defined := declared(old)) != machine:
                    differs = True
                    changes = tuple(_differing(_MACHINE_FIELDS, defined, machine))
                    self._add("machine", "changed", machine.name, group=name, fields=changes)
                    if defined.update_domain != machine.update_domain:
                        self._note_machine_events(before, {machine.name})
                continue
            differs = True
            previous = self._previous_group.get(machine.name)
            if previous is None:
                self._add("machine", "added", machine.name, group=name)
            else:
                moved = True
                self._moved[machine.name] = previous
                self._add("machine", "moved", machine.name, group=name, previous_group=previous)
        if moved:
            define = with_carried(define, self._moved, self._groups)
            for machine in define.machines:
                if machine.moved_from:
                    self._note_if_stranded(machine)
        if remaining:
            self._losing[name] = define
            self._remove_machines(before, list(remaining))
        elif differs:
            self._others[name] = define

    def _note_if_stranded(self, machine: Machine) -> None:
        """Note a machine that was moved to a host which is to be removed."""
        if machine.host in self._removed_hosts:
            self._stranded.append(machine.name)

    def remove_group(self, group: Group) -> None:
        self._add("group", "removed", group.name)
        self._losing[group.name] = emptied(group)
        self._remove_machines(group, [machine.name for machine in group.machines])

    def _remove_machines(self, group: Group, names: list[str]) -> None:
        for name in names:
            if name not in self._stays:
                self._add("machine", "removed", name, group=group.name)
        self._note_machine_events(group, set(names))

    def _note_machine_events(self, group: Group, names: set[str]) -> None:
        """Note the events that keep these machines from being changed."""
        self._blocked_by += [
            _blocked_by("machine", name, group, event)
            for event in group.events
            for name in event.resources
            if name in names
        ]

    def _add(self, what: str, action: str, name: str, **more: Any) -> None:
        counts = self._counts[what]
        setattr(counts, action, getattr(counts, action) + 1)
        total = self._totals[what] = self._totals.get(what, 0) + 1
        if total <= MAX_DETAILED:
            self._items.append(DifferenceItem(what=what, action=action, name=name, **more))

    def result(self, puts: tuple[Put, ...]) -> Comparison:
        difference = Difference(
            hosts=self._counts["host"],
            groups=self._counts["group"],
            machines=self._counts["machine"],
            items=tuple(self._items),
            omitted=sum(self._totals.values()) - len(self._items),
            blocked_by=tuple(self._blocked_by),
        )
        defines = {**self._losing, **self._others}
        return Comparison(difference, defines, puts, self._moved, tuple(self._stranded))


def emptied(group: Group) -> Define:
    return Define(
        kind=group.kind,
        machines=(),
        policy=group.policy,
        place=group.place,
        labels=group.labels,
    )


def with_carried(define: Define, moved: Mapping[str, str], groups: Mapping[str, Group]) -> Define:
    """Return a definition with what has happened to those of its machines that come from other
    groups."""
    wanted = {machine.name for machine in define.machines if machine.name in moved}
    old = {
        machine.name: machine
        for name in {moved[name] for name in wanted}
        for machine in groups[name].machines
        if machine.name in wanted
    }
    machines = tuple(carried(old[m.name], m) if m.name in old else m for m in define.machines)
    return msgspec.structs.replace(define, machines=machines)


def _differing(fields: Iterable[str], was: Any, becomes: Any) -> Iterator[FieldChange]:
    for field in fields:
        before, after = getattr(was, field), getattr(becomes, field)
        if before == after:
            continue
        if isinstance(before, msgspec.Struct):
            names = [inner.name for inner in msgspec.structs.fields(before)]
            yield from _differing(names, before, after)
        else:
            yield FieldChange(field, _shown(field, before), _shown(field, after))


def _shown(field: str, value: Any) -> Any:
    if field == "terminate_notice" and value is not None:
        return in_words(value)
    return msgspec.to_builtins(value)


def about_hosts(group: Group, hosts: Container[str]) -> list[BlockingEvent]:
    """Return the events that are planned or under way for one of these hosts."""
    about = [event for event in group.events if event.host in hosts]
    return [_blocked_by("host", event.host, group, event) for event in about]


def _blocked_by(what: str, name: str, group: Group, event: Any) -> BlockingEvent:
    return BlockingEvent(
        what=what,
        name=name,
        group=group.name,
        event=event.id,
        type=event.type.value,
        status=event.status.value,
    )

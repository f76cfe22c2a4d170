"""The difference between the inventory and a fleet.

Pure, so that it can be computed in a thread. What has happened to a machine since it was defined
(an eviction, a delete, a move to another host) is not a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from forewarn.core import Group, Machine
from forewarn.core.commands import Define
from forewarn.core.deciding.define import merged_machine
from forewarn.core.fleet import Host
from forewarn.core.registry import (
    ConfigurationPut,
    ConfigurationRemoved,
    HostPut,
    HostRemoved,
    Put,
)
from forewarn.core.windows.may_postpone import MayPostpone
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet.build import Fleet
from forewarn.service.fleet.removal_limit import Removals
from forewarn.support.text import in_words

MAX_DETAILED = 1_000  # hosts, groups and machines, each, that are listed one by one

_HOST_FIELDS = ("labels", "capacity", "cordoned")
_CONFIGURATION_FIELDS = ("select", "windows", "blackouts")
_GROUP_FIELDS = ("kind", "policy", "place", "labels")
_MACHINE_FIELDS = tuple(
    field.name
    for field in msgspec.structs.fields(Machine)
    if field.name
    not in (
        "name",
        "moved_from",
        "relocated",
        "disputed",
        "disputed_by_poll",
        "answered_on",
        "not_back",
        "gone",
    )
)


class FieldChange(msgspec.Struct, frozen=True):
    field: str
    before: Any
    after: Any


class DifferenceItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    what: str  # host, group, machine or maintenance (a configuration)
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


class PlacementConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that is elsewhere than the fleet file says, as far as is known."""

    machine: str
    group: str
    file: str  # the host in the file
    known: str  # the host that the machine is known to be on


class ExcessRemovals(msgspec.Struct, frozen=True, kw_only=True):
    """More machines would be removed than is allowed without giving their number, or another number
    was given."""

    count: int
    allowed: int
    given: int | None = None  # if it is not the right one


class Counts(msgspec.Struct):
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    hosts: Counts
    groups: Counts
    machines: Counts
    maintenance: Counts = msgspec.field(default_factory=Counts)
    items: tuple[DifferenceItem, ...] = ()  # up to MAX_DETAILED of each kind
    omitted: int = 0
    blocked_by: tuple[BlockingEvent, ...] = ()
    conflicts: tuple[PlacementConflict, ...] = ()  # up to MAX_DETAILED
    omitted_conflicts: int = 0
    warnings: tuple[str, ...] = ()
    refused_for: ExcessRemovals | None = None

    @property
    def nothing(self) -> bool:
        return not any(
            msgspec.structs.astuple(counts) != (0, 0, 0, 0)
            for counts in (self.hosts, self.groups, self.machines, self.maintenance)
        )


class Comparison(msgspec.Struct, frozen=True):
    """A difference, and the changes that apply it. Groups that lose machines come first."""

    difference: Difference
    defines: dict[str, Define]
    puts: tuple[Put, ...]
    moved: dict[str, str]  # machines that change groups, and their old groups
    stranded: tuple[str, ...]  # machines that are on a host that is removed
    removals: Removals = Removals()
    warnings: tuple[str, ...] = ()  # that do not depend on what happens until the commit


def compare(
    groups: Mapping[str, Group],
    hosts: Mapping[str, Host],
    fleet: Fleet,
    progress: Callable[[float], None] = lambda _: None,
    configurations: Mapping[str, MaintenanceConfiguration] = MappingProxyType({}),
) -> Comparison:
    comparer = _Comparer(groups, fleet)
    puts = list(comparer.hosts(hosts, fleet.hosts))
    puts += comparer.configurations(configurations, fleet.configurations)
    count = max(len(fleet.groups), 1)
    for number, (name, define) in enumerate(fleet.groups.items()):
        comparer.group(name, define)
        progress(number / count)
    for group in groups.values():
        if group.machines and group.name not in fleet.groups:
            comparer.remove_group(group)
    return comparer.result(tuple(puts))


def declared_host(host: Host) -> Host:
    """Return a host as in a fleet file, without its health."""
    return Host(
        name=host.name,
        labels=host.labels,
        capacity=host.capacity,
        cordoned=host.cordoned or None,
    )


def with_declared(host: Host, wanted: Host) -> Host:
    """Return a host with what a fleet file says about it."""
    cordoned = bool(host.cordoned if wanted.cordoned is None else wanted.cordoned)
    note = host.cordon_note if cordoned and host.cordoned else ""
    return msgspec.structs.replace(
        host,
        labels=wanted.labels,
        capacity=wanted.capacity,
        cordoned=cordoned or None,
        cordon_note=note,
    )


def declared(machine: Machine) -> Machine:
    """Return a machine as it was defined, without what has happened to it since."""
    happened = (
        machine.gone or machine.disputed or machine.answered_on or machine.not_back is not None
    )
    if not happened and machine.moved_from is None:
        return machine
    return as_known(msgspec.structs.replace(machine, host=machine.inventory_host))


def as_known(machine: Machine) -> Machine:
    """Return a machine as it would be defined if the inventory knew where it is."""
    return msgspec.structs.replace(
        machine,
        moved_from=None,
        relocated=False,
        disputed="",
        disputed_by_poll=False,
        answered_on="",
        not_back=None,
        gone="",
    )


class _Comparer:
    def __init__(self, groups: Mapping[str, Group], fleet: Fleet) -> None:
        self._groups = groups
        self._conflicts: list[PlacementConflict] = []
        self._omitted_conflicts = 0
        self._alive = sum(m.alive for g in groups.values() for m in g.machines)
        self._previous_group = {m.name: g.name for g in groups.values() for m in g.machines}
        self._stays = {m.name for define in fleet.groups.values() for m in define.machines}
        kinds = ("host", "group", "machine", "maintenance")
        self._counts = {kind: Counts() for kind in kinds}
        self._items: list[DifferenceItem] = []
        self._totals: dict[str, int] = {}
        self._blocked_by: list[BlockingEvent] = []
        self._losing: dict[str, Define] = {}
        self._others: dict[str, Define] = {}
        self._moved: dict[str, str] = {}
        self._removed_hosts: set[str] = set()
        self._stranded: list[str] = []
        self._removed: dict[str, list[str]] = {}  # machines that are not gone already, by group

    def hosts(self, current: Mapping[str, Host], wanted: Iterable[Host]) -> Iterator[Put]:
        names = set()
        for host in wanted:
            names.add(host.name)
            before = current.get(host.name)
            if before is None:
                self._add("host", "added", host.name)
                yield HostPut(host)
                continue
            wanted_host = with_declared(before, host)
            if fields := tuple(_differing(_HOST_FIELDS, before, wanted_host)):
                self._add("host", "changed", host.name, fields=fields)
                yield HostPut(msgspec.structs.replace(wanted_host, cordoned=host.cordoned))
        removed = [name for name in current if name not in names]
        for name in removed:
            self._add("host", "removed", name)
            yield HostRemoved(name)
        if removed:
            self._removed_hosts = set(removed)
            self._note_host_events()

    def configurations(
        self,
        current: Mapping[str, MaintenanceConfiguration],
        wanted: tuple[MaintenanceConfiguration, ...] | None,
    ) -> Iterator[Put]:
        """Compare maintenance configurations; without wanted ones, they stay as they are."""
        if wanted is None:
            return
        for configuration in wanted:
            before = current.get(configuration.name)
            if before == configuration:
                continue
            if before is None:
                self._add("maintenance", "added", configuration.name)
            else:
                fields = tuple(_differing(_CONFIGURATION_FIELDS, before, configuration))
                self._add("maintenance", "changed", configuration.name, fields=fields)
            yield ConfigurationPut(configuration)
        for name in current.keys() - {configuration.name for configuration in wanted}:
            self._add("maintenance", "removed", name)
            yield ConfigurationRemoved(name)

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
                if old == machine:
                    continue
                after = merged_machine(old, machine, define)
                if after.host != machine.host:
                    self._note_if_stranded(old)
                    self._note_conflict(name, define, machine, after)
                changes = tuple(_differing(_MACHINE_FIELDS, *_as_defined(old, machine, after)))
                if changes:
                    self._add("machine", "changed", machine.name, group=name, fields=changes)
                    if old.domain != machine.domain:
                        self._note_machine_events(before, {machine.name})
                differs = differs or after != old
                continue
            differs = True
            previous = self._previous_group.get(machine.name)
            if previous is None:
                self._add("machine", "added", machine.name, group=name)
            else:
                moved = True
                self._moved[machine.name] = previous
        if moved:
            define = self._moved_machines(name, define)
        if remaining:
            self._losing[name] = define
            self._remove_machines(before, remaining.values())
        elif differs:
            self._others[name] = define

    def _moved_machines(self, name: str, wanted: Define) -> Define:
        """Note the machines that come from other groups, and return the definition with what has
        happened to them."""
        define = with_carried(wanted, self._moved, self._groups)
        previous = _previous_machines(wanted, self._moved, self._groups)
        for machine, after in zip(wanted.machines, define.machines, strict=True):
            old = previous.get(machine.name)
            if old is None:
                continue
            self._add(
                "machine",
                "moved",
                machine.name,
                group=name,
                previous_group=self._moved[machine.name],
                fields=tuple(_differing(_MACHINE_FIELDS, *_as_defined(old, machine, after))),
            )
            if after.moved_from is not None:
                self._note_if_stranded(after)
                self._note_conflict(name, define, machine, after)
        return define

    def _note_conflict(self, group: str, define: Define, wanted: Machine, after: Machine) -> None:
        """Note a machine that stays elsewhere than the file says, unless the file only does not
        know that a driver has moved it."""
        if not define.observed or wanted.name in define.kept or not wanted.host or after.relocated:
            return
        if len(self._conflicts) == MAX_DETAILED:
            self._omitted_conflicts += 1
            return
        self._conflicts.append(
            PlacementConflict(
                machine=wanted.name,
                group=group,
                file=wanted.host,
                known=after.host,
            )
        )

    def _note_if_stranded(self, machine: Machine) -> None:
        """Note a machine that was moved to a host which is to be removed."""
        if machine.host in self._removed_hosts:
            self._stranded.append(machine.name)

    def remove_group(self, group: Group) -> None:
        self._add("group", "removed", group.name)
        self._losing[group.name] = emptied(group)
        self._remove_machines(group, group.machines)

    def _remove_machines(self, group: Group, machines: Collection[Machine]) -> None:
        for machine in machines:
            if machine.name not in self._stays:
                self._add("machine", "removed", machine.name, group=group.name)
                if machine.alive:
                    self._removed.setdefault(group.name, []).append(machine.name)
        self._note_machine_events(group, {machine.name for machine in machines})

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
            maintenance=self._counts["maintenance"],
            items=tuple(self._items),
            omitted=sum(self._totals.values()) - len(self._items),
            blocked_by=tuple(self._blocked_by),
            conflicts=tuple(self._conflicts),
            omitted_conflicts=self._omitted_conflicts,
        )
        defines = {**self._losing, **self._others}
        removals = Removals(self._removed, self._alive, len(self._stays))
        return Comparison(difference, defines, puts, self._moved, tuple(self._stranded), removals)


def _as_defined(old: Machine, wanted: Machine, after: Machine) -> tuple[Machine, Machine]:
    """Return a machine as it was defined and as it becomes defined. Where a machine is known to be
    is not part of that, unless the definition changes it."""
    defined = declared(old)
    if after.host == old.host and after.host != wanted.host:
        return defined, msgspec.structs.replace(wanted, host=defined.host)
    if after.host != old.host:
        defined = msgspec.structs.replace(defined, host=old.host)
    return defined, wanted


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
    old = _previous_machines(define, moved, groups)
    machines = tuple(
        merged_machine(old[m.name], m, define) if m.name in old else m for m in define.machines
    )
    return msgspec.structs.replace(define, machines=machines)


def _previous_machines(
    define: Define, moved: Mapping[str, str], groups: Mapping[str, Group]
) -> dict[str, Machine]:
    """Return those machines of a definition that come from other groups, as they are there."""
    wanted = {machine.name for machine in define.machines if machine.name in moved}
    return {
        machine.name: machine
        for name in {moved[name] for name in wanted}
        for machine in groups[name].machines
        if machine.name in wanted
    }


def _differing(fields: Iterable[str], was: Any, becomes: Any) -> Iterator[FieldChange]:
    for field in fields:
        before, after = getattr(was, field), getattr(becomes, field)
        if before == after:
            continue
        if isinstance(before, msgspec.Struct) and not isinstance(before, MayPostpone):
            names = [inner.name for inner in msgspec.structs.fields(before)]
            yield from _differing(names, before, after)
        else:
            yield FieldChange(field, _shown(field, before), _shown(field, after))


def _shown(field: str, value: Any) -> Any:
    if field in ("terminate_notice", "image_notice", "back_within") and value is not None:
        return in_words(value)
    if field == "may_postpone" and value is not None:
        return str(value)
    if field in ("windows", "blackouts"):
        return [item.text for item in value]
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

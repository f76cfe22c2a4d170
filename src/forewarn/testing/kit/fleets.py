"""Groups and hosts that a test adds to the fleet in one call, such as `scale_set("web", 3)`.

Each change is a function from the present fleet to the wanted one, with the same checks as a fleet
file. The handles that a test gets are `machines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import msgspec

from forewarn.core import GroupKind, Refused
from forewarn.core.commands import Define
from forewarn.core.fleet import Host
from forewarn.core.refusal import conflict, invalid
from forewarn.service.fleet import shapes as e
from forewarn.service.fleet.build import (
    MAX_PLACEMENT_GROUP,
    Fleet,
    FleetBuilder,
    FleetError,
    host_of,
)
from forewarn.support.convert import convert
from forewarn.support.text import counted, listing
from forewarn.support.yaml.positions import Problems
from forewarn.testing.durations import Duration, in_seconds
from forewarn.testing.kit.events import event_type
from forewarn.testing.names import EventType

MAX_MACHINES = 10_000  # of one scale set in a test

Change: TypeAlias = Callable[[Fleet], Fleet | Refused]


class GroupDetails(TypedDict, total=False):
    """Optional properties of a group and its machines."""

    spot: bool
    """Whether its machines are spot machines, which can be evicted."""
    update_domains: int
    """The number of update domains over which its machines are spread; five by default."""
    hosts: str | Iterable[str]
    """The hosts over which its machines are spread; they are created if they do not exist."""
    labels: Mapping[str, str]
    """Labels of the group, by which rollouts select it."""
    tags: Mapping[str, str]
    """Tags of each machine, which the instance metadata shows."""
    auto_approve: EventType | Iterable[EventType]
    """The types of users' events that are approved automatically."""
    event_grid: bool
    """Whether its events are published to Event Grid and Azure Resource Graph."""
    zone: str
    """The availability zone, which the instance metadata shows."""
    location: str
    """The region, which the instance metadata shows."""


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A group that a test wants to add."""

    name: str
    kind: GroupKind
    machines: tuple[str, ...]
    spot: bool = False
    update_domains: int | None = None  # over which machines are spread; None: over five
    hosts: tuple[str, ...] = ()  # over which they are spread, too
    labels: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}
    terminate_notice: str | None = None
    auto_approve: tuple[str, ...] = ()
    event_grid: bool = False
    zone: str = ""
    location: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of its groups: several for a large scale set."""
        return tuple(name for name, _ in _parts(self))


def group_spec(
    kind: GroupKind,
    name: str,
    machines: Iterable[str],
    details: GroupDetails,
    terminate_notice: Duration | None = None,
) -> GroupSpec:
    options: dict[str, Any] = dict(details)
    options["hosts"] = _as_tuple(options.get("hosts"))
    types = _as_tuple(options.get("auto_approve"))
    options["auto_approve"] = tuple(event_type(type).value for type in types)
    try:
        return GroupSpec(
            name=name,
            kind=kind,
            machines=tuple(machines),
            terminate_notice=_as_text(terminate_notice),
            **options,
        )
    except TypeError as error:
        keys = ", ".join(GroupDetails.__annotations__)
        raise TypeError(f"{error}; a group's machines take {keys}") from None


def _as_text(duration: Duration | None) -> str | None:
    """Return a duration as a fleet file has it."""
    return None if duration is None else f"{in_seconds(duration):f}"


def _as_tuple(names: Iterable[str] | None) -> tuple[str, ...]:
    """Accept a single name as well as several."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def numbered(prefix: str, count: int) -> list[str]:
    """Return `count` names, but at most one more than MAX_MACHINES, which is refused later."""
    return [f"{prefix}{n}" for n in range(min(count, MAX_MACHINES + 1))]


def add_group(spec: GroupSpec, *, grow: bool) -> Change:
    """Add the group, or with `grow` extend it. Machines that it has already stay as they are."""

    def change(fleet: Fleet) -> Fleet | Refused:
        if refusal := _refusal(spec, fleet, grow):
            return refusal
        with_hosts = hosts(*spec.hosts)(fleet)
        assert isinstance(with_hosts, Fleet)
        groups = dict(with_hosts.groups)
        for name, part in _parts(spec):
            before = groups.get(name)
            try:
                groups[name] = _define(spec, name, part, Fleet(groups, with_hosts.hosts), before)
            except (FleetError, msgspec.ValidationError) as error:
                return invalid(f"{spec.kind.value} '{spec.name}': {error}")
        return Fleet(groups, with_hosts.hosts)

    return change


def hosts(*names: str) -> Change:
    """Add the hosts that do not exist yet."""

    def change(fleet: Fleet) -> Fleet:
        existing = {host.name for host in fleet.hosts}
        missing = [name for name in dict.fromkeys(names) if name not in existing]
        new: list[Host] = [host_of(e.HostEntry(name=name), ()) for name in missing]
        return Fleet(fleet.groups, (*fleet.hosts, *new))

    return change


def _refusal(spec: GroupSpec, fleet: Fleet, grow: bool) -> Refused | None:
    kind, name, count = spec.kind.value, spec.name, len(spec.machines)
    if not count:
        return invalid(f"{kind} '{name}' must have at least one machine")
    if count > MAX_MACHINES:
        return invalid(f"{kind} '{name}' can have at most {MAX_MACHINES:,} machines in a test")
    if spec.update_domains is not None and spec.update_domains < 1:
        return invalid(f"{kind} '{name}' must have at least one update domain")
    if not grow and any(
        machine.name == name for g in fleet.groups.values() for machine in g.machines
    ):
        return conflict(f"machine '{name}' exists already; service[\"{name}\"] returns it")
    present = fleet.groups.get(name)
    if present is None:
        return None
    if not grow or present.kind is not spec.kind:
        return conflict(f"group '{name}' exists already; its kind is {present.kind.value}")
    members = [
        machine.name
        for part, _ in _parts(spec)
        if part in fleet.groups
        for machine in fleet.groups[part].machines
    ]
    if removed := [machine for machine in members if machine not in spec.machines]:
        return conflict(
            f"{kind} '{name}' has {counted(len(members), 'machine')} and cannot shrink to {count}"
            " this way; remove machines with delete(), evict() or scale_in():"
            f" {listing(removed)}"
        )
    return None


def _parts(spec: GroupSpec) -> list[tuple[str, tuple[str, ...]]]:
    """Split it into groups: a large scale set has several placement groups."""
    if spec.kind is not GroupKind.SCALE_SET:
        return [(spec.name, spec.machines)]
    size, machines = MAX_PLACEMENT_GROUP, spec.machines
    return [
        (f"{spec.name}-{n // size + 1}" if n else spec.name, machines[n : n + size])
        for n in range(0, len(machines), size)
    ]


def _define(
    spec: GroupSpec, name: str, machines: Sequence[str], fleet: Fleet, before: Define | None
) -> Define:
    existing = {machine.name: machine for machine in before.machines} if before else {}
    number = {machine: n for n, machine in enumerate(spec.machines)}
    entry = convert(
        {
            "name": name,
            "kind": spec.kind,
            "machines": [_entry(spec, machine, number[machine]) for machine in machines],
            "labels": dict(spec.labels) or (dict(before.labels) if before else {}),
            "zone": spec.zone,
            "location": spec.location,
            "scale_set": spec.name if spec.kind is GroupKind.SCALE_SET else "",
            "policy": {
                "terminate_notice": spec.terminate_notice,
                "auto_approve": list(spec.auto_approve),
                "event_grid": spec.event_grid,
            },
        },
        e.GroupEntry,
    )
    problems = Problems()
    builder = FleetBuilder(problems, fleet, without=name)
    builder.group(entry, ())
    new = builder.finish(e.FleetEntry(groups=[]), fleet.hosts).groups[name]
    if problems.errors:
        raise problems.errors[0]
    if before is None:
        return new
    has_policy = spec.terminate_notice is not None or spec.auto_approve or spec.event_grid
    return msgspec.structs.replace(
        before,
        machines=tuple(existing.get(machine.name, machine) for machine in new.machines),
        policy=new.policy if has_policy else before.policy,
        labels=new.labels,
    )


def _entry(spec: GroupSpec, machine: str, number: int) -> dict[str, Any]:
    spread = spec.update_domains
    return {
        "name": machine,
        "spot": spec.spot,
        "update_domain": None if spread is None else number % spread,
        "host": spec.hosts[number % len(spec.hosts)] if spec.hosts else "",
        "tags": dict(spec.tags),
    }

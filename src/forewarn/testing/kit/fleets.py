"""A fleet in one line: what the fleet verbs of a service add to the inventory.

Each is a function from the fleet that is there to the one that is wanted, with the same checks as
a fleet file. Handles for what was made are `machines.py`.
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
from forewarn.service.fleet.build import MAX_PLACEMENT_GROUP, Fleet, FleetBuilder, host_of
from forewarn.support.text import listing
from forewarn.support.yaml_positions import FleetError
from forewarn.testing.kit.events import event_type

MAX_MACHINES = 10_000  # of one scale set in a test

Change: TypeAlias = Callable[[Fleet], Fleet | Refused]


class Details(TypedDict, total=False):
    """What may be said of a group's machines, besides their names."""

    spot: bool  # may they be evicted?
    update_domains: int  # over which they are spread; five if not said
    hosts: Iterable[str]  # over which, too; made if they are not there
    labels: Mapping[str, str]  # of the group, to select it by
    tags: Mapping[str, str]  # of each machine, for instance metadata
    auto_approve: Iterable[str]  # users' events of these types start without being asked
    zone: str
    location: str


class GroupSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A group as a test asks for it."""

    name: str
    kind: GroupKind
    machines: tuple[str, ...]
    spot: bool = False
    update_domains: int | None = None  # over which machines are spread; None: over five
    hosts: tuple[str, ...] = ()  # over which, too
    labels: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}
    terminate_notice: str | None = None
    auto_approve: tuple[str, ...] = ()
    zone: str = ""
    location: str | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """Their names: several if it is a large scale set."""
        return tuple(name for name, _ in _parts(self))


def wanted(
    kind: GroupKind,
    name: str,
    machines: Iterable[str],
    details: Details,
    terminate_notice: str | None = None,
) -> GroupSpec:
    said: dict[str, Any] = dict(details)
    said["hosts"] = _each(said.get("hosts", ()))
    said["auto_approve"] = tuple(event_type(one).value for one in _each(said.get("auto_approve")))
    try:
        return GroupSpec(
            name=name,
            kind=kind,
            machines=tuple(machines),
            terminate_notice=terminate_notice,
            **said,
        )
    except TypeError as error:
        keys = ", ".join(Details.__annotations__)
        raise TypeError(f"{error}; of a group's machines one may say {keys}") from None


def _each(said: Iterable[str] | None) -> tuple[str, ...]:
    """One is several as well: a name is not taken for its letters."""
    return (said,) if isinstance(said, str) else tuple(said or ())


def numbered(begin: str, count: int) -> list[str]:
    """Names up to a number, and no list of a thousand million of them."""
    return [f"{begin}{n}" for n in range(min(count, MAX_MACHINES + 1))]


def put(wanted: GroupSpec, *, grow: bool) -> Change:
    """The group among what is there. Machines it has already stay as they are."""

    def change(fleet: Fleet) -> Fleet | Refused:
        if wrong := _wrong(wanted, fleet, grow):
            return wrong
        with_hosts = hosts(*wanted.hosts)(fleet)
        assert isinstance(with_hosts, Fleet)
        groups = dict(with_hosts.groups)
        for name, part in _parts(wanted):
            before = groups.get(name)
            try:
                groups[name] = _defined(wanted, name, part, Fleet(groups, with_hosts.hosts), before)
            except (FleetError, msgspec.ValidationError) as error:
                return invalid(f"{wanted.kind.value} '{wanted.name}': {error}")
        return Fleet(groups, with_hosts.hosts)

    return change


def hosts(*names: str) -> Change:
    """These hosts, besides those that are there."""

    def change(fleet: Fleet) -> Fleet:
        known = {host.name for host in fleet.hosts}
        new: list[Host] = []
        for name in dict.fromkeys(names):
            if name not in known:
                new.append(host_of(e.HostEntry(name=name), ()))
        return Fleet(fleet.groups, (*fleet.hosts, *new))

    return change


def _wrong(wanted: GroupSpec, fleet: Fleet, grow: bool) -> Refused | None:
    kind, name, count = wanted.kind.value, wanted.name, len(wanted.machines)
    if not count:
        return invalid(f"{kind} '{name}' has at least one machine")
    if count > MAX_MACHINES:
        return invalid(f"{kind} '{name}' has at most {MAX_MACHINES} machines in a test")
    if wanted.update_domains is not None and wanted.update_domains < 1:
        return invalid(f"{kind} '{name}' is spread over at least one update domain")
    there = fleet.groups.get(name)
    if there is None:
        return None
    if not grow or there.kind is not wanted.kind:
        return conflict(f"there is a group '{name}' already, a {there.kind.value}")
    had = [
        m.name
        for part, _ in _parts(wanted)
        if part in fleet.groups
        for m in fleet.groups[part].machines
    ]
    if left_out := [machine for machine in had if machine not in wanted.machines]:
        return conflict(
            f"{kind} '{name}' has {len(had)} machines, and this would be {count}: it only grows"
            f" here. Machines leave by delete(), evict() or scale_in(): {listing(left_out)}"
        )
    return None


def _parts(wanted: GroupSpec) -> list[tuple[str, tuple[str, ...]]]:
    """The groups it is: several placement groups if it is a large scale set."""
    if wanted.kind is not GroupKind.SCALE_SET:
        return [(wanted.name, wanted.machines)]
    size, all_of_them = MAX_PLACEMENT_GROUP, wanted.machines
    return [
        (f"{wanted.name}-{n // size + 1}" if n else wanted.name, all_of_them[n : n + size])
        for n in range(0, len(all_of_them), size)
    ]


def _defined(
    wanted: GroupSpec, name: str, machines: Sequence[str], among: Fleet, before: Define | None
) -> Define:
    known = {machine.name: machine for machine in before.machines} if before else {}
    number = {machine: n for n, machine in enumerate(wanted.machines)}
    entry = msgspec.convert(
        {
            "name": name,
            "kind": wanted.kind,
            "machines": [_entry(wanted, machine, number[machine]) for machine in machines],
            "labels": dict(wanted.labels) or (dict(before.labels) if before else {}),
            "zone": wanted.zone,
            "location": wanted.location,
            "scale_set": wanted.name if wanted.kind is GroupKind.SCALE_SET else "",
            "policy": {
                "terminate_notice": wanted.terminate_notice,
                "auto_approve": list(wanted.auto_approve),
            },
        },
        e.GroupEntry,
    )
    building = FleetBuilder(among, without=name)
    building.group(entry, ())
    made = building.finished(e.FleetEntry(groups=[]), among.hosts).groups[name]
    if before is None:
        return made
    said = wanted.terminate_notice is not None or wanted.auto_approve
    return msgspec.structs.replace(
        before,
        machines=tuple(known.get(machine.name, machine) for machine in made.machines),
        policy=made.policy if said else before.policy,
        labels=made.labels,
    )


def _entry(wanted: GroupSpec, machine: str, number: int) -> dict[str, Any]:
    spread = wanted.update_domains
    return {
        "name": machine,
        "spot": wanted.spot,
        "update_domain": None if spread is None else number % spread,
        "host": wanted.hosts[number % len(wanted.hosts)] if wanted.hosts else "",
        "tags": dict(wanted.tags),
    }

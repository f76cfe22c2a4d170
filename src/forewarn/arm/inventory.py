"""The fleet as resources of Azure Resource Manager: where each has its place, and what its id is.

Subscriptions and resource groups are those in the fleet file; what names none is in the default
ones. Names are compared in any letter case. What a token is limited from does not exist for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from forewarn.arm.errors import ArmError, invalid_parameter, not_found
from forewarn.control.http.access.authorization import (
    host_visible,
    visible_hosts,
    visible_on_host,
)
from forewarn.control.http.context import CallContext
from forewarn.control.views.azure import (
    DEFAULT_LOCATION,
    DEFAULT_RESOURCE_GROUP,
    DEFAULT_SUBSCRIPTION,
    MACHINES,
    SCALE_SETS,
    group_id,
    location_of,
    resource_group_of,
    scale_set_id,
    scale_set_of,
    subscription_of,
)
from forewarn.core import Event, Group, GroupKind, Machine
from forewarn.core.fleet import Host

CREATED = "1970-01-01T00:00:00Z"  # of everything: when a machine was made is not known
INSTANCE_DIGITS = 9  # at most, in the number of a member of a scale set
HOST_GROUP = "hosts"  # that all hosts are in
AVAILABILITY_SETS = "Microsoft.Compute/availabilitySets"
HOST_GROUPS = "Microsoft.Compute/hostGroups"


class ScaleSet(msgspec.Struct, frozen=True):
    """A scale set, which is one group, or all placement groups that name it."""

    name: str
    groups: tuple[Group, ...]

    @property
    def place(self) -> Group:
        """The group that says where it is."""
        return self.groups[0]

    @property
    def key(self) -> tuple[str]:
        """By what scale sets are sorted."""
        return (scale_set_id(self.place).lower(),)

    @property
    def capacity(self) -> int:
        """The number of members, without those that are being deleted."""
        return sum(len(group.staying) for group in self.groups)

    def members(self) -> Iterator[tuple[Group, Machine]]:
        """Yield its members that exist."""
        return ((group, m) for group in self.groups for m in group.machines if m.alive)

    def keyed_members(self) -> Iterator[tuple[tuple[str], Group, Machine]]:
        """Yield the same, each after that by which they are sorted: its number."""
        for group in self.groups:
            prefix = _prefix_of(group)
            for machine in group.machines:
                if not machine.gone:
                    id = machine.name[len(prefix) :]
                    yield (id.zfill(INSTANCE_DIGITS),), group, machine


def instance_id(group: Group, machine: Machine) -> str:
    """Return the number by which a machine is addressed in its scale set; its name if that is
    flexible."""
    return machine.name[len(_prefix_of(group)) :]


def _prefix_of(group: Group) -> str:
    """Return what precedes the number of a member; empty: they have names of their own."""
    return f"{scale_set_of(group)}_" if is_uniform(group) else ""


def is_uniform(group: Group) -> bool:
    """Are its machines numbered members of a scale set, which are no resources of their own?"""
    return group.kind is GroupKind.SCALE_SET and not group.place.flexible


def machine_id(group: Group, machine: Machine) -> str:
    if is_uniform(group):
        return f"{scale_set_id(group)}/virtualMachines/{instance_id(group, machine)}"
    return f"{group_id(group)}/providers/{MACHINES}/{machine.name}"


def availability_set_id(group: Group) -> str:
    return f"{group_id(group)}/providers/{AVAILABILITY_SETS}/{group.name}"


def host_group_id() -> str:
    return (
        f"/subscriptions/{DEFAULT_SUBSCRIPTION}/resourceGroups/{DEFAULT_RESOURCE_GROUP}"
        f"/providers/{HOST_GROUPS}/{HOST_GROUP}"
    )


def host_id(name: str) -> str:
    return f"{host_group_id()}/hosts/{name}"


def scale_sets(groups: Iterable[Group]) -> list[ScaleSet]:
    found: dict[str, list[Group]] = {}
    for group in groups:
        if scale_set_of(group):
            found.setdefault(scale_set_id(group).lower(), []).append(group)
    return [ScaleSet(scale_set_of(groups[0]), tuple(groups)) for groups in found.values()]


class Inventory:
    """The resources that one caller sees."""

    def __init__(self, call: CallContext) -> None:
        self._call = call
        self._index = call.platform.machine_index

    def groups(self, subscription: str, resource_group: str = "") -> list[Group]:
        """Return the groups in a subscription, or in a resource group of it. Raises ArmError if
        there is none of that name."""
        of_subscription = [
            group
            for group in self.visible()
            if subscription_of(group).lower() == subscription.lower()
        ]
        if not of_subscription and subscription.lower() != DEFAULT_SUBSCRIPTION:
            raise ArmError(
                404,
                "SubscriptionNotFound",
                f"The subscription '{subscription}' could not be found.",
            )
        if not resource_group:
            return of_subscription
        found = [
            group
            for group in of_subscription
            if resource_group_of(group).lower() == resource_group.lower()
        ]
        if not found and not _is_default(subscription, resource_group):
            raise ArmError(
                404,
                "ResourceGroupNotFound",
                f"Resource group '{resource_group}' could not be found.",
            )
        return found

    def visible(self) -> Iterator[Group]:
        return (group for group in self._index.groups() if self._call.sees(group.name))

    def subscriptions(self) -> list[str]:
        """Return all subscriptions; there is always the default one."""
        found = {subscription_of(group).lower(): subscription_of(group) for group in self.visible()}
        return sorted({**found, DEFAULT_SUBSCRIPTION: DEFAULT_SUBSCRIPTION}.values())

    def resource_groups(self, subscription: str) -> dict[str, str]:
        """Return the resource groups of a subscription, and the location of each."""
        found: dict[str, tuple[str, str]] = {}
        if subscription.lower() == DEFAULT_SUBSCRIPTION:
            found[DEFAULT_RESOURCE_GROUP] = (DEFAULT_RESOURCE_GROUP, DEFAULT_LOCATION)
        for group in self.groups(subscription):
            name = resource_group_of(group)
            found.setdefault(name.lower(), (name, location_of(group)))
        return dict(sorted(found.values()))

    def machine(self, subscription: str, resource_group: str, name: str) -> tuple[Group, Machine]:
        """Return a machine that is a resource of its own. Raises ArmError."""
        groups = self.groups(subscription, resource_group)
        for group in groups:
            found = group.machine(name)
            if found is not None and found.alive and not is_uniform(group):
                return group, found
        for group in groups:
            for machine in () if is_uniform(group) else group.machines:
                if machine.alive and machine.name.lower() == name.lower():
                    return group, machine
        raise not_found(MACHINES, name, resource_group)

    def scale_sets(self, subscription: str, resource_group: str = "") -> list[ScaleSet]:
        return scale_sets(self.groups(subscription, resource_group))

    def scale_set(self, subscription: str, resource_group: str, name: str) -> ScaleSet:
        for scale_set in self.scale_sets(subscription, resource_group):
            if scale_set.name.lower() == name.lower():
                return scale_set
        raise not_found(SCALE_SETS, name, resource_group)

    def sees_all_of(self, scale_set: ScaleSet) -> bool:
        """Does the caller see all groups of a scale set?"""
        return all(
            self._call.sees(group.name)
            for group in self._index.groups()
            if scale_set_of(group) and (scale_set_id(group).lower(),) == scale_set.key
        )

    def instance(self, scale_set: ScaleSet, id: str) -> tuple[Group, Machine]:
        if found := self._by_id(scale_set, [id])[id]:
            return found
        kind, name = f"{SCALE_SETS}/virtualMachines", f"{scale_set.name}/{id}"
        raise not_found(kind, name, resource_group_of(scale_set.place))

    def instances(
        self, scale_set: ScaleSet, ids: Sequence[str] | None
    ) -> list[tuple[Group, Machine]]:
        """Return the members of a scale set with these ids; None or `*`: all. Raises ArmError."""
        if ids is None or list(ids) == ["*"]:
            members = sorted(scale_set.keyed_members(), key=lambda member: member[0])
            return [(group, machine) for _, group, machine in members]
        by_id = self._by_id(scale_set, ids)
        if unknown := [id for id, member in by_id.items() if member is None]:
            raise invalid_parameter(
                f"Scale set '{scale_set.name}' has no instance {', '.join(unknown)}."
            )
        return [member for member in by_id.values() if member is not None]

    def _by_id(
        self, scale_set: ScaleSet, ids: Iterable[str]
    ) -> dict[str, tuple[Group, Machine] | None]:
        """Return the members of a scale set with these ids; None: there is none."""
        groups = {group.name for group in scale_set.groups}
        by_id: dict[str, tuple[Group, Machine] | None] = {}
        for id in ids:
            names = (f"{scale_set.name}_{id}", id)  # numbered, or not
            found = next(filter(None, map(self._index.machine, names)), None)
            by_id[id] = None
            if found is not None and found[0].name in groups and found[1].alive:
                by_id[id] = found if instance_id(*found) == id else None
        if None in by_id.values() and not is_uniform(scale_set.place):  # in any letter case
            named = {
                machine.name.lower(): (group, machine) for group, machine in scale_set.members()
            }
            by_id = {id: found or named.get(id.lower()) for id, found in by_id.items()}
        return by_id

    def availability_set(self, subscription: str, resource_group: str, name: str) -> Group:
        for group in self.groups(subscription, resource_group):
            if group.kind is GroupKind.AVAILABILITY_SET and group.name.lower() == name.lower():
                return group
        raise not_found(AVAILABILITY_SETS, name, resource_group)

    def hosts(self) -> list[Host]:
        return visible_hosts(self._call)

    def host(self, name: str) -> Host:
        for host in self._call.hosts.hosts():
            if host.name.lower() == name.lower() and host_visible(self._call, host.name):
                return host
        raise not_found(f"{HOST_GROUPS}/hosts", f"{HOST_GROUP}/{name}", DEFAULT_RESOURCE_GROUP)

    def on_host(self, name: str) -> tuple[list[tuple[Group, Machine]], list[Event]]:
        """Return the machines on a host, and the events about it."""
        machines, events = visible_on_host(self._call, name)
        members = [self._index.machine(machine.name) for machine in machines if machine.alive]
        return [member for member in members if member is not None], events

    def is_default(self, subscription: str, resource_group: str = "") -> bool:
        """Is this the place of what belongs to no group: hosts and maintenance configurations?
        Raises ArmError if there is no such place."""
        self.groups(subscription, resource_group)
        return _is_default(subscription, resource_group or DEFAULT_RESOURCE_GROUP)

    def require_host_group(self, subscription: str, resource_group: str, name: str) -> None:
        """Raise ArmError unless this is the host group that all hosts are in."""
        if not self.is_default(subscription, resource_group) or name.lower() != HOST_GROUP:
            raise not_found(HOST_GROUPS, name, resource_group)


def _is_default(subscription: str, resource_group: str) -> bool:
    return (
        subscription.lower() == DEFAULT_SUBSCRIPTION
        and resource_group.lower() == DEFAULT_RESOURCE_GROUP
    )

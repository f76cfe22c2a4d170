"""What an operation of Microsoft.Maintenance is about: a machine, a scale set or a member of one,
an availability set, or a host. Such operations extend the path of the resource."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from forewarn.arm import inventory as i
from forewarn.arm.errors import ArmError
from forewarn.arm.request import Request
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP
from forewarn.control.views import azure
from forewarn.core import Event, Group, Machine, Source
from forewarn.service.access.secret import hidden

RESOURCE = RESOURCE_GROUP + COMPUTE + "/{resource_type}/{resource_name}"
CHILD = RESOURCE_GROUP + COMPUTE + "/{parent_type}/{parent_name}/{resource_type}/{resource_name}"

INSTANCES = f"{azure.SCALE_SETS}/virtualMachines"
HOSTS = f"{i.HOST_GROUPS}/hosts"
KINDS = {
    kind.lower(): kind
    for kind in (azure.MACHINES, azure.SCALE_SETS, i.AVAILABILITY_SETS, INSTANCES, HOSTS)
}


class Target(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str  # its type
    groups: dict[str, Group]
    machines: frozenset[str]
    host: str = ""  # only what is planned for this host

    def concerns(self, event: Event) -> bool:
        """Is an event about one of its machines? What is never announced is not shown here."""
        return (
            event.group in self.groups
            and not event.unannounced
            and (not self.host or event.host == self.host)
            and not self.machines.isdisjoint(event.resources)
        )

    def events(self) -> list[Event]:
        """Return the events that are not over."""
        events = (event for group in self.groups.values() for event in group.events)
        return [event for event in events if self.concerns(event)]

    def maintenance(self) -> list[Event]:
        """Return the maintenance that is planned or under way."""
        return [event for event in self.events() if is_maintenance(event)]


def is_maintenance(event: Event) -> bool:
    """Is an event planned maintenance by the platform, after which its machines still exist?"""
    return (
        event.source is Source.PLATFORM
        and not event.unannounced
        and not event.failure
        and not event.traits.deletes
    )


def target_of(request: Request, *, hosts: bool = False) -> Target:
    """Return what the path of a request names. Raises ArmError."""
    names = request.names
    types = [names[key] for key in ("parent_type", "resource_type") if key in names]
    kind = KINDS.get("/".join(["Microsoft.Compute", *types]).lower())
    if kind is None or (kind == HOSTS and not hosts):
        shown = hidden("/".join(types)[:100])
        raise ArmError(
            404,
            "InvalidResourceType",
            f"The resource type 'Microsoft.Compute/{shown}' has no such operation here;"
            " virtual machines, scale sets and their instances, and availability sets do.",
        )
    id, members = _found(request, kind)
    return Target(
        id=id,
        kind=kind,
        groups={group.name: group for group, _ in members},
        machines=frozenset(machine.name for _, machine in members),
        host=id.rpartition("/")[2] if kind == HOSTS else "",
    )


def _found(request: Request, kind: str) -> tuple[str, Sequence[tuple[Group, Machine]]]:
    """Return the id of a resource, and its machines."""
    names, inventory = request.names, i.Inventory(request.call)
    place, name = request.place, names["resource_name"]
    if kind == azure.MACHINES:
        member = inventory.machine(*place, name)
        return i.machine_id(*member), [member]
    if kind == i.AVAILABILITY_SETS:
        group = inventory.availability_set(*place, name)
        alive = [(group, machine) for machine in group.machines if machine.alive]
        return i.availability_set_id(group), alive
    if kind == azure.SCALE_SETS:
        scale_set = inventory.scale_set(*place, name)
        return azure.scale_set_id(scale_set.place), list(scale_set.members())
    parent = names["parent_name"]
    if kind == INSTANCES:
        member = inventory.instance(inventory.scale_set(*place, parent), name)
        return i.machine_id(*member), [member]
    inventory.require_host_group(*place, parent)
    host = inventory.host(name)
    return i.host_id(host.name), inventory.on_host(host.name)[0]

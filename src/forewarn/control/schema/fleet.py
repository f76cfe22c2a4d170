"""Types of the inventory in the control API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forewarn.control.schema.types import doc, documented

MAX_FLEET_BYTES = 256 * 1024 * 1024  # of the body of a fleet, with up to a million machines


class FieldChange(msgspec.Struct):
    """A change of one field."""

    field: Annotated[str, doc("Name of the field.")]
    before: Annotated[Any, doc("Its value before the change.")]
    after: Annotated[Any, doc("Its value after the change.")]


class FleetItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host, group, machine or maintenance configuration that is added, changed, moved or
    removed."""

    what: Annotated[
        str, documented(enum=["host", "group", "machine", "maintenance"]), doc("What is changed.")
    ]
    action: Annotated[
        str, documented(enum=["added", "changed", "moved", "removed"]), doc("The change.")
    ]
    name: Annotated[str, doc("Name of the host, group or machine.")]
    group: Annotated[str, doc("Group of a machine; empty for a host or a group.")] = ""
    previous_group: Annotated[str, doc("Group of a machine before it is moved.")] = ""
    fields: Annotated[list[FieldChange], doc("Fields that change.")] = []


class BlockingEvent(msgspec.Struct, kw_only=True):
    """An active event that prevents a change of the inventory."""

    what: Annotated[str, doc("`host` or `machine`.")]
    name: Annotated[str, doc("Name of the host or machine that could not be changed.")]
    group: Annotated[str, doc("Group of the event.")]
    event: Annotated[str, doc("Id of the event.")]
    type: Annotated[str, doc("Type of the event.")]
    status: Annotated[str, doc("Status of the event.")]


class PlacementConflict(msgspec.Struct, kw_only=True):
    """A machine that is known to be on another host than the fleet file says."""

    machine: Annotated[str, doc("Name of the machine.")]
    group: Annotated[str, doc("Name of its group.")]
    file: Annotated[str, doc("Host in the file.")]
    known: Annotated[str, doc("Host that the machine is known to be on.")]


class ExcessRemovals(msgspec.Struct, kw_only=True):
    """More machines would be removed than the limit allows, or another number was given."""

    count: Annotated[int, doc("How many machines would be removed: give this as `remove`.")]
    allowed: Annotated[int, doc("How many may be removed without that.")]
    given: Annotated[
        int | None, doc("The `remove` of the request, if it is not the right number.")
    ] = None


class FleetCounts(msgspec.Struct):
    """How many items are added, changed, moved and removed."""

    added: Annotated[int, doc("How many are added.")] = 0
    changed: Annotated[int, doc("How many are changed.")] = 0
    moved: Annotated[int, doc("How many are moved to another group.")] = 0
    removed: Annotated[int, doc("How many are removed.")] = 0

    @property
    def total(self) -> int:
        return self.added + self.changed + self.moved + self.removed


class FleetDifference(msgspec.Struct, kw_only=True):
    """The changes that were made to the inventory, or would be made by a plan."""

    planned: Annotated[bool, doc("Whether this is only a plan, and nothing has been changed.")]
    hosts: Annotated[FleetCounts, doc("How many hosts change.")]
    groups: Annotated[FleetCounts, doc("How many groups change.")]
    machines: Annotated[FleetCounts, doc("How many machines change.")]
    maintenance: Annotated[FleetCounts, doc("How many maintenance configurations change.")] = (
        msgspec.field(default_factory=FleetCounts)
    )
    items: Annotated[
        list[FleetItem], doc("At most a thousand each of hosts, groups and machines.")
    ] = []
    omitted: Annotated[int, doc("How many more items there are.")] = 0
    blocked_by: Annotated[
        list[BlockingEvent],
        doc("Active events that prevent the change unless `force` is given."),
    ] = []
    conflicts: Annotated[
        list[PlacementConflict],
        doc("Machines that stay on another host than the file says; at most a thousand."),
    ] = []
    omitted_conflicts: Annotated[int, doc("How many more conflicts there are.")] = 0
    warnings: Annotated[
        list[str], doc("Hosts that get machines although they are not healthy.")
    ] = []
    refused_for: Annotated[
        ExcessRemovals | None,
        doc("Of a plan: why it would be refused unless the right `remove` is given."),
    ] = None
    etag: Annotated[str, doc("Of a plan: ETag of the current fleet, for If-Match.")] = ""

    @property
    def total(self) -> int:
        parts = (self.hosts, self.groups, self.machines, self.maintenance)
        return sum(part.total for part in parts)


class FleetProgress(msgspec.Struct):
    """The progress of a fleet that is being applied."""

    stage: Annotated[
        str,
        doc("`reading`, `comparing`, `deciding` or `storing`; empty: no fleet is being applied."),
    ]
    fraction: Annotated[float, doc("Progress, from 0 to 1.")]

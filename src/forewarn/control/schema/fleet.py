"""Types of the inventory in the control API."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forewarn.control.schema.types import doc, documented

MAX_FLEET_BYTES = 64 * 1024 * 1024  # of the body of a fleet


class FieldChange(msgspec.Struct):
    """A change of one field."""

    field: str
    before: Any
    after: Any


class FleetItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host, group or machine that is added, changed, moved or removed."""

    what: Annotated[str, documented(enum=["host", "group", "machine"])]
    action: Annotated[
        str, documented(enum=["added", "changed", "moved", "removed"]), doc("The change.")
    ]
    name: str
    group: str = ""
    previous_group: Annotated[str, doc("Group of a machine before it is moved.")] = ""
    fields: list[FieldChange] = []


class BlockingEvent(msgspec.Struct, kw_only=True):
    """An active event that prevents a change of the inventory."""

    what: Annotated[str, doc("`host` or `machine`.")]
    name: str
    group: str
    event: str
    type: Annotated[str, doc("Type of the event.")]
    status: Annotated[str, doc("Status of the event.")]


class FleetCounts(msgspec.Struct):
    """How many items are added, changed, moved and removed."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.changed + self.moved + self.removed


class FleetDifference(msgspec.Struct, kw_only=True):
    """The changes that were made to the inventory, or would be made by a plan."""

    planned: Annotated[bool, doc("Whether this is only a plan, and nothing has been changed.")]
    hosts: FleetCounts
    groups: FleetCounts
    machines: FleetCounts
    items: Annotated[
        list[FleetItem], doc("At most a thousand each of hosts, groups and machines.")
    ] = []
    omitted: Annotated[int, doc("How many more items there are.")] = 0
    blocked_by: Annotated[
        list[BlockingEvent],
        doc("Active events that prevent the change unless `force` is given."),
    ] = []
    warnings: Annotated[
        list[str], doc("Hosts that get machines although they are not healthy.")
    ] = []
    etag: Annotated[str, doc("Of a plan: ETag of the current fleet, for If-Match.")] = ""

    @property
    def total(self) -> int:
        return self.hosts.total + self.groups.total + self.machines.total


class FleetProgress(msgspec.Struct):
    """The progress of a fleet that is being applied."""

    stage: Annotated[
        str,
        doc("`reading`, `comparing`, `deciding` or `storing`; empty: no fleet is being applied."),
    ]
    fraction: Annotated[float, doc("Progress, from 0 to 1.")]

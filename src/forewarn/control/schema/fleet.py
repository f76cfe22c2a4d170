"""The shapes of the control API that are about the inventory as a whole, for both sides of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forewarn.control.schema.types import doc, documented

MAX_FLEET_BYTES = 64 * 1024 * 1024  # of a fleet that is put


class FieldChange(msgspec.Struct):
    field: str
    before: Any
    after: Any


class FleetItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    what: Annotated[str, documented(enum=["host", "group", "machine"])]
    action: Annotated[
        str, documented(enum=["added", "changed", "moved", "removed"]), doc("What is done.")
    ]
    name: str
    group: str = ""
    previous_group: Annotated[str, doc("Group that it moves from.")] = ""
    fields: list[FieldChange] = []


class BlockingEvent(msgspec.Struct, kw_only=True):
    what: str  # host or machine
    name: str
    group: str
    event: str
    type: Annotated[str, doc("Type of the event.")]
    status: Annotated[str, doc("Status of the event.")]


class FleetCounts(msgspec.Struct):
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.changed + self.moved + self.removed


class FleetDifference(msgspec.Struct, kw_only=True):
    """What has changed, or would, if only planned."""

    planned: Annotated[bool, doc("Whether nothing has been changed yet.")]
    hosts: FleetCounts
    groups: FleetCounts
    machines: FleetCounts
    items: Annotated[
        list[FleetItem], doc("At most a thousand each of hosts, groups and machines.")
    ] = []
    omitted: Annotated[int, doc("How many more items there are.")] = 0
    blocked_by: Annotated[
        list[BlockingEvent],
        doc("Active events because of which the change is refused without force."),
    ] = []
    warnings: Annotated[
        list[str], doc("Hosts that are not healthy and are given machines all the same.")
    ] = []
    etag: Annotated[str, doc("ETag of the fleet that a plan was compared with, for If-Match.")] = ""

    @property
    def total(self) -> int:
        return self.hosts.total + self.groups.total + self.machines.total


class FleetProgress(msgspec.Struct):
    stage: Annotated[
        str, doc("reading, comparing, deciding or storing; empty: nothing is under way.")
    ]
    fraction: float

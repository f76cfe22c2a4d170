"""The shapes of the control API that are about the inventory as a whole, for both sides of it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forewarn.control.schema.types import documented

MAX_FLEET_BYTES = 64 * 1024 * 1024  # of a fleet that is put


class FieldChange(msgspec.Struct):
    field: str
    before: Any
    after: Any


class FleetItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    what: Annotated[str, documented(enum=["host", "group", "machine"])]
    action: Annotated[str, documented(enum=["added", "changed", "moved", "removed"])]
    name: str
    group: str = ""
    previous_group: str = ""
    fields: list[FieldChange] = []


class BlockingEvent(msgspec.Struct, kw_only=True):
    what: str  # host or machine
    name: str
    group: str
    event: str
    type: str
    status: str


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

    planned: bool
    hosts: FleetCounts
    groups: FleetCounts
    machines: FleetCounts
    items: list[FleetItem] = []  # at most a thousand each of hosts, groups and machines
    omitted: int = 0
    blocked_by: list[BlockingEvent] = []  # without force it is refused because of these
    warnings: list[str] = []  # hosts that are not well and are given machines all the same
    etag: str = ""  # of a plan: the fleet that it was compared with, for If-Match

    @property
    def total(self) -> int:
        return self.hosts.total + self.groups.total + self.machines.total


class FleetProgress(msgspec.Struct):
    stage: str  # reading, comparing, deciding or storing; empty: nothing is under way
    fraction: float

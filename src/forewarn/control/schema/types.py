"""The words that the shapes of the control API are made of: names that are one of a few, and values
within bounds, as the API's document says them. Enforced are they where things are decided; a test
compares the two. Needs nothing but msgspec.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from forewarn.wire.versions import TYPE_NAMES

EVENT_TYPES = TYPE_NAMES
STATUSES = ("Scheduled", "Started", "Finished", "Withdrawn")
SOURCES = ("Platform", "User")
KINDS = ("standalone", "cloud-service", "availability-set", "availability-zone", "scale-set")
HEALTHS = ("healthy", "degraded", "failed")
MAINTENANCE_MODES = ("Freeze", "Reboot", "live-migration")
STATES = ("running", "paused", "blocked", "aborting", "aborted", "done")
STEP_STATES = ("waiting", "announced", "started", "done", "nothing to do", "cancelled")
HOLDS = (
    *("notice", "grace", "restored", "machine", "domain", "coupling", "window", "joint"),
    "clock",
    "driver",
)
WAITS = ("paused", "event", "bake", "gate", "window", "cancelled", "turn", "clock")

MAX_WORDS = 1_024  # characters of a description or a reason
MAX_NOTICE = 7_776_000  # seconds
MAX_IMPACT = 86_400  # seconds
MAX_SELECTED = 100
MAX_EVENT_MACHINES = 1_000
MAX_WINDOWS = 20
MAX_AT_ONCE = 1_000
MAX_BAKE = 604_800  # seconds
MAX_GATE_TIMEOUT = 604_800  # seconds


def exactly_one_of(*names: str) -> dict[str, Any]:
    """JSON Schema of an object that has exactly one of these properties, null being none."""
    return {"oneOf": [_only(name, names) for name in names]}


def at_most_one_of(*names: str) -> dict[str, Any]:
    null = {"type": "null"}
    return {"anyOf": [{"properties": {name: null}} for name in names]}


def _only(name: str, names: tuple[str, ...]) -> dict[str, Any]:
    others = {other: {"type": "null"} for other in names if other != name}
    there = {name: {"not": {"type": "null"}}}
    return {"required": [name], "properties": there | others}


def documented(**words: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=words)


Moment: TypeAlias = Annotated[datetime, documented(format="date-time")]
TypeName: TypeAlias = Annotated[str, documented(enum=list(EVENT_TYPES))]
StatusName: TypeAlias = Annotated[str, documented(enum=list(STATUSES))]
SourceName: TypeAlias = Annotated[str, documented(enum=list(SOURCES))]
KindName: TypeAlias = Annotated[str, documented(enum=list(KINDS))]
HealthName: TypeAlias = Annotated[str, documented(enum=list(HEALTHS))]
MaintenanceMode: TypeAlias = Annotated[str, documented(enum=list(MAINTENANCE_MODES))]
StateName: TypeAlias = Annotated[str, documented(enum=list(STATES))]
StepState: TypeAlias = Annotated[str, documented(enum=list(STEP_STATES))]
HoldKind: TypeAlias = Annotated[str, documented(enum=list(HOLDS))]
WaitKind: TypeAlias = Annotated[str, documented(enum=list(WAITS))]
Id: TypeAlias = Annotated[str, documented(pattern="^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$")]
Words: TypeAlias = Annotated[str, documented(maxLength=MAX_WORDS)]
Notice: TypeAlias = Annotated[float, documented(minimum=0, maximum=MAX_NOTICE)]
Impact: TypeAlias = Annotated[int, documented(minimum=-1, maximum=MAX_IMPACT)]
Names: TypeAlias = Annotated[
    list[str], documented(minItems=1, maxItems=MAX_EVENT_MACHINES, uniqueItems=True)
]
Few: TypeAlias = Annotated[list[str], documented(maxItems=MAX_SELECTED)]

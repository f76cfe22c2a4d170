"""Field types of the control API: strings from an enumeration, and numbers and lists within limits.

Enumerations and limits are only named here (`enum="EventType"`); `openapi.values` fills them in for
the document, and `openapi.limits` enforces the limits. This module needs nothing but msgspec.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec


def exactly_one_of(*names: str) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly one of these properties that is not null."""
    return {"oneOf": [_only(name, names) for name in names]}


def at_most_one_of(*names: str) -> dict[str, Any]:
    null = {"type": "null"}
    return {"anyOf": [{"properties": {name: null}} for name in names]}


def _only(name: str, names: tuple[str, ...]) -> dict[str, Any]:
    others = {other: {"type": "null"} for other in names if other != name}
    present = {name: {"not": {"type": "null"}}}
    return {"required": [name], "properties": present | others}


def doc(text: str) -> msgspec.Meta:
    """Describe a field in the OpenAPI document."""
    return msgspec.Meta(description=text)


def documented(**schema: Any) -> msgspec.Meta:
    """Add JSON Schema keywords to a type. msgspec does not enforce them; `openapi.limits` does."""
    return msgspec.Meta(extra_json_schema=schema)


Moment: TypeAlias = Annotated[datetime, documented(format="date-time")]
TypeName: TypeAlias = Annotated[str, documented(enum="EventType")]
RolloutKind: TypeAlias = Annotated[str, documented(enum="RolloutKind")]
StatusName: TypeAlias = Annotated[str, documented(enum="Status")]
SourceName: TypeAlias = Annotated[str, documented(enum="Source")]
KindName: TypeAlias = Annotated[str, documented(enum="GroupKind")]
OverWhenName: TypeAlias = Annotated[str, documented(enum="OverWhen")]
HealthName: TypeAlias = Annotated[str, documented(enum="Health")]
NodeStateName: TypeAlias = Annotated[str, documented(enum="NodeState")]
MaintenanceMode: TypeAlias = Annotated[str, documented(enum="MaintenanceMode")]
StateName: TypeAlias = Annotated[str, documented(enum="RolloutState")]
StepState: TypeAlias = Annotated[str, documented(enum="StepState")]
StepAction: TypeAlias = Annotated[str, documented(enum="StepAction")]
CoverageName: TypeAlias = Annotated[str, documented(enum="Coverage")]
AdviceName: TypeAlias = Annotated[str, documented(enum="AdviceKind")]
HoldKind: TypeAlias = Annotated[str, documented(enum="HoldKind")]
WaitKind: TypeAlias = Annotated[str, documented(enum="WaitKind")]
Text: TypeAlias = Annotated[str, documented(maxLength="MAX_DESCRIPTION")]
Ticket: TypeAlias = Annotated[
    str,
    documented(maxLength="MAX_TICKET"),
    doc("The operators' reference for it, such as a change request. Guests do not see it."),
]
ReadyNote: TypeAlias = Annotated[str, documented(maxLength="MAX_READY_NOTE")]
Notice: TypeAlias = Annotated[float, documented(minimum=0, maximum="MAX_NOTICE")]
Impact: TypeAlias = Annotated[int, documented(minimum=-1, maximum="MAX_DURATION_SECONDS")]
Names: TypeAlias = Annotated[
    list[str], documented(minItems=1, maxItems="MAX_EVENT_MACHINES", uniqueItems=True)
]
Selected: TypeAlias = Annotated[list[str], documented(maxItems="MAX_SELECTED")]
Windows: TypeAlias = Annotated[
    list[str],
    documented(maxItems="MAX_WINDOWS"),
    doc("Maintenance starts only while one of these windows is open; empty: at any time."),
]
Blackouts: TypeAlias = Annotated[
    list[str],
    documented(maxItems="MAX_BLACKOUTS"),
    doc("No maintenance starts in these times."),
]
IgnoreWindows: TypeAlias = Annotated[
    bool, doc("Let it start outside of maintenance windows and in blackouts.")
]

"""Field types of the control API: strings from an enumeration, and numbers and lists within limits.

Limits are enforced where a body is read; types of responses have none, so that a client accepts
what a later version allows. Enumerations are only named here (`enum="EventType"`);
`openapi.document` fills them in, and handlers enforce them. This module needs nothing but msgspec.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from forewarn.support import limits


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


def doc(text: str) -> Meta:
    """Describe a field in the OpenAPI document."""
    return Meta(description=text)


def documented(**schema: Any) -> Meta:
    """Add JSON Schema keywords to a type, which msgspec does not enforce."""
    return Meta(extra_json_schema=schema)


Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
TypeName: TypeAlias = Annotated[str, documented(enum="EventType")]
FailureType: TypeAlias = Annotated[str, documented(enum="FailureType")]
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
DriftName: TypeAlias = Annotated[str, documented(enum="Drift")]
CoverageName: TypeAlias = Annotated[str, documented(enum="Coverage")]
AdviceName: TypeAlias = Annotated[str, documented(enum="AdviceKind")]
ProblemKind: TypeAlias = Annotated[str, documented(enum="ProblemKind")]
HoldKind: TypeAlias = Annotated[str, documented(enum="HoldKind")]
WaitKind: TypeAlias = Annotated[str, documented(enum="WaitKind")]
TICKET = "The operators' reference for it, such as a change request. Guests do not see it."
WINDOWS = "Maintenance starts only while one of these windows is open; empty: at any time."
BLACKOUTS = "No maintenance starts in these times, e.g. 2026-12-20 to 2027-01-06."

Text: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_DESCRIPTION)]
Ticket: TypeAlias = Annotated[str, doc(TICKET)]
NewTicket: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_TICKET), doc(TICKET)]
ReadyNote: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_READY_NOTE)]
Notice: TypeAlias = Annotated[float, Meta(ge=0, le=limits.MAX_NOTICE_SECONDS)]
Impact: TypeAlias = Annotated[int, Meta(ge=-1, le=limits.MAX_DURATION_SECONDS)]
Names: TypeAlias = Annotated[
    list[str],
    Meta(min_length=1, max_length=limits.MAX_EVENT_MACHINES),
    documented(uniqueItems=True),
]
Selected: TypeAlias = Annotated[list[str], Meta(max_length=limits.MAX_SELECTED)]
Windows: TypeAlias = Annotated[list[str], doc(WINDOWS)]
NewWindows: TypeAlias = Annotated[list[str], Meta(max_length=limits.MAX_WINDOWS), doc(WINDOWS)]
Blackouts: TypeAlias = Annotated[list[str], doc(BLACKOUTS)]
NewBlackouts: TypeAlias = Annotated[
    list[str], Meta(max_length=limits.MAX_BLACKOUTS), doc(BLACKOUTS)
]
IgnoreWindows: TypeAlias = Annotated[
    bool, doc("Let it start outside of maintenance windows and in blackouts.")
]

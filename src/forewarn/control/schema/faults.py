"""The shapes of faults in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from forewarn.control.schema.types import Moment, documented

FAULT_KINDS = (
    *("slow", "throttled", "gone", "error", "empty", "no-events", "plain", "control-characters"),
    *("truncated", "stalled", "reset", "incarnation", "sudden", "vanish", "short-notice"),
)
FAULT_STATES = ("waiting", "active", "used up", "over")
FAULT_METHODS = ("", "GET", "POST")
MAX_TIMES = 1_000_000
MAX_SEED = 2**63 - 1
MAX_AHEAD = 7_776_000  # seconds
MAX_BODY = 64 * 1024  # characters

FaultKind: TypeAlias = Annotated[str, documented(enum=list(FAULT_KINDS))]
FaultState: TypeAlias = Annotated[str, documented(enum=list(FAULT_STATES))]
Method: TypeAlias = Annotated[str, documented(enum=list(FAULT_METHODS))]
Times: TypeAlias = Annotated[int, documented(minimum=1, maximum=MAX_TIMES)]
Skip: TypeAlias = Annotated[int, documented(minimum=0, maximum=MAX_TIMES)]
Chance: TypeAlias = Annotated[float, documented(exclusiveMinimum=0, maximum=1)]
Seed: TypeAlias = Annotated[int, documented(minimum=0, maximum=MAX_SEED)]
Ahead: TypeAlias = Annotated[float, documented(minimum=0, maximum=MAX_AHEAD)]
ErrorStatus: TypeAlias = Annotated[int, documented(minimum=500, maximum=599)]
FaultBody: TypeAlias = Annotated[str, documented(maxLength=MAX_BODY)]


class FaultRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    kind: FaultKind
    machines: list[str] = []
    groups: list[str] = []  # neither: all
    method: Method = ""
    times: Times | None = None
    skip: Skip = 0
    starts_in: Ahead | None = None
    lasts: Ahead | None = None
    probability: Chance = 1.0
    seed: Seed | None = None
    seconds: Ahead | None = None
    status: ErrorStatus | None = None
    body: FaultBody | None = None
    takes_effect: bool | None = None


class Fault(msgspec.Struct, kw_only=True):
    """What is to go wrong, and what has come of it."""

    id: str
    kind: FaultKind
    state: FaultState
    message: str  # "3 of 5 consumed"
    machines: list[str]
    groups: list[str]
    method: str
    times: int | None
    skip: int
    starts_at: Moment
    ends_at: Moment | None
    probability: float
    seed: int
    seconds: float | None
    status: int | None
    body: str | None
    takes_effect: bool
    added_at: Moment
    added_by: str
    matched: int
    consumed: int
    remaining: int | None
    by_machine: dict[str, int]
    last_at: Moment | None

"""Types of injected faults in the control API. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.control.schema.types import Moment, doc, documented
from forewarn.support import limits

FaultKind: TypeAlias = Annotated[str, documented(enum="FaultKind")]
FaultState: TypeAlias = Annotated[str, documented(enum="FaultState")]
Method: TypeAlias = Annotated[str, documented(enum="FaultMethod")]
Times: TypeAlias = Annotated[int, Meta(ge=1, le=limits.MAX_FAULT_TIMES)]
Skip: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_FAULT_TIMES)]
Probability: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=limits.MAX_SEED)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=limits.MAX_NOTICE_SECONDS)]
ErrorStatus: TypeAlias = Annotated[int, Meta(ge=500, le=599)]
FaultBody: TypeAlias = Annotated[str, Meta(max_length=limits.MAX_FAULT_BODY)]


class FaultRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault to inject."""

    kind: Annotated[FaultKind, doc("Kind of the fault.")]
    machines: Annotated[
        list[str], doc("Only these machines; without `machines` and `groups`: all.")
    ] = []
    groups: Annotated[list[str], doc("Only these groups.")] = []
    method: Annotated[Method, doc("Only requests with this method; empty: any.")] = ""
    times: Annotated[
        Times | None,
        doc("How many requests or events it affects; null: all until it is cleared."),
    ] = None
    skip: Annotated[Skip, doc("How many matching requests or events it skips first.")] = 0
    starts_in: Annotated[Seconds | None, doc("Seconds until it takes effect.")] = None
    lasts: Annotated[Seconds | None, doc("Seconds after which it stops.")] = None
    probability: Annotated[
        Probability, doc("Probability that it affects a matching request or event.")
    ] = 1.0
    seed: Annotated[
        Seed | None, doc("Seed of its random numbers: the same seed gives the same sequence.")
    ] = None
    seconds: Annotated[
        Seconds | None, doc("Seconds by which it delays a response or an event.")
    ] = None
    status: Annotated[ErrorStatus | None, doc("Status of the response.")] = None
    body: Annotated[FaultBody | None, doc("Body of the response.")] = None
    takes_effect: Annotated[
        bool | None, doc("Whether an approval counts although its response is faulty.")
    ] = None


class Fault(msgspec.Struct, kw_only=True):
    """An injected fault, and how often it has taken effect."""

    id: Annotated[str, doc("Id of the fault.")]
    kind: Annotated[FaultKind, doc("Kind of the fault.")]
    state: Annotated[FaultState, doc("State of the fault.")]
    message: Annotated[str, doc("How much of it has been consumed, as text.")]
    machines: Annotated[
        list[str], doc("Only these machines; without `machines` and `groups`: all.")
    ]
    groups: Annotated[list[str], doc("Only these groups.")]
    method: Annotated[str, doc("Only requests with this method; empty: any.")]
    times: Annotated[
        int | None,
        doc("How many requests or events it affects; null: all until it is cleared."),
    ]
    skip: Annotated[int, doc("How many matching requests or events it skips first.")]
    starts_at: Annotated[Moment, doc("When it takes effect.")]
    ends_at: Annotated[Moment | None, doc("When it stops; null: when it is cleared.")]
    probability: Annotated[float, doc("Probability that it affects a matching request or event.")]
    seed: Annotated[int, doc("Seed of its random numbers: the same seed gives the same sequence.")]
    seconds: Annotated[float | None, doc("Seconds by which it delays a response or an event.")]
    status: Annotated[int | None, doc("Status of the response.")]
    body: Annotated[str | None, doc("Body of the response.")]
    takes_effect: Annotated[
        bool, doc("Whether an approval counts although its response is faulty.")
    ]
    added_at: Annotated[Moment, doc("When it was added.")]
    added_by: Annotated[str, doc("Who added it.")]
    matched: Annotated[int, doc("How many requests or events have matched.")]
    consumed: Annotated[int, doc("How many requests or events it has affected.")]
    remaining: Annotated[
        int | None,
        doc("How many more requests or events it will affect; null: all until it is cleared."),
    ]
    by_machine: Annotated[dict[str, int], doc("How often it has affected each machine.")]
    last_at: Annotated[Moment | None, doc("When it last affected something.")]

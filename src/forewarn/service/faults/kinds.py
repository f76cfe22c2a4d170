"""The kinds of faults that clients meet on the real service, and the options of each.

A table only: which request or event meets a fault is `registry.py`, what the response is then is
`metadata/faults/inject.py`, and what becomes of an event is `event_faults.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

MAX_DELAY = 120.0  # seconds of delay: the first response of the real service may take as long
SHORT_NOTICE = 5.0  # seconds, by default


class FaultKind(enum.Enum):
    SLOW = "slow"
    THROTTLED = "throttled"
    GONE = "gone"
    ERROR = "error"
    EMPTY = "empty"
    NO_EVENTS = "no-events"
    PLAIN = "plain"
    CONTROL_CHARACTERS = "control-characters"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    RESET = "reset"
    INCARNATION = "incarnation"
    SUDDEN = "sudden"
    VANISH = "vanish"
    SHORT_NOTICE = "short-notice"


class FaultTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind of fault does, and which options it takes."""

    description: str
    methods: tuple[str, ...] = ("GET", "POST")  # requests that it can meet
    of_events: bool = False  # affects events that are raised, not requests
    seconds: float | None = None  # the default of the option `seconds`
    timed: bool = False  # does it take the option `seconds`?
    delays: bool = False  # are `seconds` the delay of a response?
    takes_effect: bool | None = None  # the default, for an approval; None: not an option
    status: bool = False  # does it take the option `status`?
    body: bool = False  # and `body`?


GET_ONLY = ("GET",)

KINDS: Mapping[FaultKind, FaultTraits] = {
    FaultKind.SLOW: FaultTraits(
        description="the correct response, delayed", seconds=MAX_DELAY, timed=True, delays=True
    ),
    FaultKind.THROTTLED: FaultTraits(description="429, too many requests", takes_effect=False),
    FaultKind.GONE: FaultTraits(
        description="410, the service is being updated", takes_effect=False
    ),
    FaultKind.ERROR: FaultTraits(
        description="500, or another 5xx", takes_effect=False, status=True, body=True
    ),
    FaultKind.EMPTY: FaultTraits(description="200 with an empty body", methods=GET_ONLY),
    FaultKind.NO_EVENTS: FaultTraits(
        description="200 with a document without Events", methods=GET_ONLY
    ),
    FaultKind.PLAIN: FaultTraits(description="200 as text/plain", methods=GET_ONLY, body=True),
    FaultKind.CONTROL_CHARACTERS: FaultTraits(
        description="200 with raw control characters in a string", methods=GET_ONLY
    ),
    FaultKind.TRUNCATED: FaultTraits(
        description="half of the document, then the connection is closed", methods=GET_ONLY
    ),
    FaultKind.STALLED: FaultTraits(
        description="the response begins and is never completed",
        timed=True,
        delays=True,
        takes_effect=True,
    ),
    FaultKind.RESET: FaultTraits(
        description="the connection is reset without a response", takes_effect=True
    ),
    FaultKind.INCARNATION: FaultTraits(
        description="the incarnation starts over at 1", methods=GET_ONLY
    ),
    FaultKind.SUDDEN: FaultTraits(
        description="an event is Started without having been Scheduled", of_events=True
    ),
    FaultKind.VANISH: FaultTraits(
        description="a Scheduled event disappears after it was seen, or after some seconds",
        of_events=True,
        timed=True,
    ),
    FaultKind.SHORT_NOTICE: FaultTraits(
        description="an event has much less notice than promised",
        of_events=True,
        timed=True,
        seconds=SHORT_NOTICE,
    ),
}

"""The kinds of faults that clients meet on the real service, and what may be said about each.

A table, and nothing that acts: who is met by a fault is `registry.py`, what an answer looks like
then is `metadata/faults/inject.py`, and what becomes of an event is `event_faults.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

MAX_HELD = 120.0  # that an answer is held: the real service's first may take as long
SHORT_NOTICE = 5.0  # seconds, unless somebody says how many


class Kind(enum.Enum):
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


class Nature(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind is, and which words go with it."""

    says: str
    methods: tuple[str, ...] = ("GET", "POST")  # of the requests that it can meet
    of_events: bool = False  # it meets events that are raised, and no requests
    seconds: float | None = None  # unless somebody says how many; with `timed`
    timed: bool = False  # does it take seconds?
    held: bool = False  # are they the seconds of an answer that is waited for?
    takes_effect: bool | None = None  # an approval, unless somebody says; None: nobody can say
    status: bool = False  # may one say with which status it answers?
    body: bool = False  # and with which words?


GET_ONLY = ("GET",)

KINDS: Mapping[Kind, Nature] = {
    Kind.SLOW: Nature(says="the proper answer, late", seconds=MAX_HELD, timed=True, held=True),
    Kind.THROTTLED: Nature(says="429, too many requests", takes_effect=False),
    Kind.GONE: Nature(says="410, the service is being updated", takes_effect=False),
    Kind.ERROR: Nature(says="500, or another 5xx", takes_effect=False, status=True, body=True),
    Kind.EMPTY: Nature(says="200 with an empty body", methods=GET_ONLY),
    Kind.NO_EVENTS: Nature(says="200 with a document without Events", methods=GET_ONLY),
    Kind.PLAIN: Nature(says="200 as text/plain", methods=GET_ONLY, body=True),
    Kind.CONTROL_CHARACTERS: Nature(
        says="200 with raw control characters in a string", methods=GET_ONLY
    ),
    Kind.TRUNCATED: Nature(says="half a document, then the connection is closed", methods=GET_ONLY),
    Kind.STALLED: Nature(
        says="the answer begins and does not go on", timed=True, held=True, takes_effect=True
    ),
    Kind.RESET: Nature(says="the connection is cut without an answer", takes_effect=True),
    Kind.INCARNATION: Nature(says="the incarnation starts over at 1", methods=GET_ONLY),
    Kind.SUDDEN: Nature(says="an event is Started without having been Scheduled", of_events=True),
    Kind.VANISH: Nature(
        says="a Scheduled event is gone again, once it was seen or after some seconds",
        of_events=True,
        timed=True,
    ),
    Kind.SHORT_NOTICE: Nature(
        says="an event has much less notice than is promised",
        of_events=True,
        timed=True,
        seconds=SHORT_NOTICE,
    ),
}

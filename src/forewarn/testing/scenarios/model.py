"""A scenario as values: what happens when, and what is expected. How it is written down is
`file/shapes.py`; here durations are microseconds and every name is known to stand for something."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from forewarn.core.time import Duration
from forewarn.service.fleet.read import Fleet

ANY = "any"  # whoever it is
EACH = "each"  # every machine that the event is about
OWN = "own"  # one of the machines that the event is about


class Moment(enum.Enum):
    """What may become of an event, and be waited for."""

    RAISED = "raised"
    SEEN = "seen"
    PREPARED = "prepared"
    APPROVED = "approved"
    STARTED = "started"
    OVER = "over"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


class When(msgspec.Struct, frozen=True, kw_only=True):
    """At a time since the timeline began, or so long after something became of an event."""

    at: Duration | None = None
    name: str = ""
    moment: Moment = Moment.RAISED
    by: str = ""  # whose seeing or approving is meant; empty: anybody's
    delay: Duration = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the timeline."""

    line: int  # where it stands in its file
    when: When
    verb: str
    words: Any  # the entry of the verb's own kind, see `testing/scenarios/file/shapes.py`
    name: str = ""
    every: Duration = 0
    times: int = 1


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """That something becomes of an event, by whom and how soon; or that it does not."""

    moment: Moment
    never: bool = False
    by: tuple[str, ...] = ()  # names, or one of ANY, EACH, OWN; empty: as the moment suggests
    within: Duration | None = None  # since it could be seen
    ahead: Duration | None = None  # of its NotBefore


class EventExpectation(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    event: str
    of: str = ""  # only those of them that are about this machine
    expected: tuple[Expected, ...] = ()
    in_time: bool | None = None


class ComplaintsExpectation(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    allowed: tuple[str, ...] = ()  # rules that may be broken


class CommandExpectation(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    exit: int | None = None
    running: bool | None = None
    crashed: bool | None = None


Expectation = EventExpectation | ComplaintsExpectation | CommandExpectation


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    about: str
    fleet: Fleet
    speakers: tuple[str, ...]  # the machines that the program under test is
    steps: tuple[Step, ...]
    expectations: tuple[Expectation, ...]
    ends: Duration | None = None  # None: when all is over
    text: str = ""

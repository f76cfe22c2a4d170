"""A scenario as values: its fleet, the steps of its timeline, and its expectations.

The format of the file is in `file/shapes.py`. Here durations are microseconds, and every name has
been checked to refer to something.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from forewarn.core.time import Duration
from forewarn.service.fleet.read import Fleet

ANY = "any"  # any machine or operator
EACH = "each"  # every machine in the event's Resources
OWN = "own"  # one of the machines in the event's Resources


class Moment(enum.Enum):
    """A moment in the life of an event that a step can wait for or an expectation can name."""

    RAISED = "raised"
    SEEN = "seen"
    PREPARED = "prepared"
    APPROVED = "approved"
    STARTED = "started"
    OVER = "over"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


class When(msgspec.Struct, frozen=True, kw_only=True):
    """When a step is due: `at` a time since the start, or `delay` after a moment of an event."""

    at: Duration | None = None
    name: str = ""
    moment: Moment = Moment.RAISED
    by: str = ""  # the machine that sees, prepares or approves; empty: any
    delay: Duration = 0


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the timeline."""

    line: int  # its number in the file
    when: When
    verb: str
    entry: Any  # the shape of the verb, see `file/timeline_shapes.py`
    name: str = ""
    every: Duration = 0
    times: int = 1


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """One moment that an event has to reach, by whom and how soon; or must never reach."""

    moment: Moment
    never: bool = False
    by: tuple[str, ...] = ()  # names, or one of ANY, EACH, OWN; empty: depends on the moment
    within: Duration | None = None  # since it was first listed
    ahead: Duration | None = None  # at least this long before its NotBefore


class EventExpectation(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    event: str
    of: str = ""  # only events with this machine in Resources
    expected: tuple[Expected, ...] = ()
    in_time: bool | None = None
    idle: bool | None = None  # whether its machines are idle when it is carried out


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
    """A scenario that was read from a file, as `forewarn.testing.scenarios.load` returns it."""

    name: str
    """Its name."""
    about: str
    """What it is about."""
    fleet: Fleet
    """Its machines, groups and hosts."""
    under_test: tuple[str, ...]
    """The machines on which the program under test runs."""
    steps: tuple[Step, ...]
    """What happens, and when."""
    expectations: tuple[Expectation, ...]
    """What is expected of the program under test."""
    ends: Duration | None = None
    """When it ends, in microseconds since its start; None if it ends when all steps are done and
    all events have ended."""
    text: str = ""
    """The text of the file."""

"""The format of a scenario file: its top level and its expectations.

The steps of the timeline are in `timeline_shapes.py`; `read.py` checks which values make sense
together.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forewarn.core.fleet import MAX_NAME, NAME

MAX_STEPS = 1_000  # of a timeline, faults included
MAX_EXPECTATIONS = 1_000
MAX_REPEATS = 10_000  # of one step
MAX_SIZE = 4 * 1024 * 1024  # bytes of a scenario file
MAX_COUNT = 10_000  # machines of a group that are given by number

_PART = r"\d+(\.\d+)?\s*([Mm][Ss]|[Mm][Ii][Nn]|[DdHhMmSs])"
_ISO = r"[Pp](\d+[Dd])?([Tt](\d+[HhMmSs])+)?"
DURATION = rf"^\s*(\d+(\.\d+)?|({_PART}\s*)+|{_ISO})\s*$"

Length = Annotated[
    str | int | float,
    Meta(extra_json_schema={"pattern": DURATION, "minimum": 0, "examples": ["30s", "1h30m"]}),
]
Name = Annotated[str, Meta(extra_json_schema={"pattern": f"^{NAME}$", "maxLength": MAX_NAME})]


def describe(text: str, **more: Any) -> Meta:
    """Return the description of a field in the JSON Schema, with `more` keywords of the schema."""
    return Meta(description=text, extra_json_schema=more or None)


class Entry(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, rename="kebab"
):
    """A mapping in the file."""


Who = Annotated[
    Name | Annotated[list[Name], Meta(extra_json_schema={"minItems": 1})],
    describe(
        "The name of a machine, or several; 'any': any machine or operator; 'each': every machine"
        " in the event's Resources; 'own': one of those."
    ),
]


class MomentEntry(Entry, kw_only=True):
    """A moment that is expected, by whom and how soon."""

    by: Who | None = None
    within: Annotated[
        Length | None, describe("At most this long after the event was first listed.")
    ] = None
    ahead: Annotated[Length | None, describe("At least this long before its NotBefore.")] = None


Moments = Annotated[
    MomentEntry | bool, describe("true: at any time; false: never; or the conditions.")
]


class EventExpected(Entry, kw_only=True):
    """What is expected of every event with this name."""

    event: Annotated[Name, describe("The name of the step that raises it.")]
    of: Annotated[Name, describe("Only events with this machine in Resources.")] = ""
    raised: Moments | None = None
    seen: Moments | None = None
    prepared: Moments | None = None
    approved: Moments | None = None
    started: Moments | None = None
    over: Moments | None = None
    finished: Moments | None = None
    withdrawn: Moments | None = None
    not_approved: Annotated[bool, describe("The same as approved: false.")] = False
    in_time: Annotated[
        bool | None, describe("Whether every machine under test sees it before it starts.")
    ] = None
    idle: Annotated[
        bool | None,
        describe(
            "Whether the machines under test are idle when it is carried out on them, as far as"
            " the check of --busy-check, or a callback in a test, knows."
        ),
    ] = None


class ComplaintsExpected(Entry, kw_only=True):
    """No complaints of the verdict, except for these rules."""

    complaints: Annotated[
        list[str], describe("Rules that may be broken; `forewarn verdict --rules` lists all.")
    ]


class CommandEntry(Entry, kw_only=True):
    exit: Annotated[int | None, describe("Its exit code, by itself or after SIGTERM.")] = None
    running: Annotated[bool | None, describe("Whether it is still running at the end.")] = None
    crashed: Annotated[
        bool | None, describe("Whether it has ended by itself with a code other than 0.")
    ] = None


class CommandExpected(Entry, kw_only=True):
    """What is expected of the command under test."""

    command: CommandEntry


NO_COMPLAINTS = "no-complaints"


class ScenarioEntry(Entry, kw_only=True):
    """A scenario: a fleet, what happens to it and when, and what is expected."""

    scenario: Annotated[Name, describe("The name of the scenario.")]
    fleet: Annotated[
        Any,
        describe(
            "A fleet, as in a fleet file; or the name of a fleet file in the directory of this one."
        ),
    ]
    timeline: Annotated[
        list[Any], describe("The steps: what happens, and when.", maxItems=MAX_STEPS)
    ]
    about: Annotated[str, describe("A description in a sentence or two.")] = ""
    as_: Annotated[
        Name | list[Name] | None,
        describe("The machines on which the program under test runs; by default the first one."),
    ] = msgspec.field(name="as", default=None)
    faults: Annotated[list[Any], describe("Faults that are injected.", maxItems=MAX_STEPS)] = []
    expect: Annotated[list[Any], describe("What is expected.", maxItems=MAX_EXPECTATIONS)] = []
    ends: Annotated[
        Length | None,
        describe("When the scenario ends, since its start; by default when all events have ended."),
    ] = None

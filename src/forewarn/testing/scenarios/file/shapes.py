"""What may stand in a scenario file, as shapes: the whole, and what can be expected. Lines of the
timeline are `timeline_shapes.py`; which values make sense together is `read.py`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from forewarn.core.fleet import MAX_NAME, NAME

MAX_STEPS = 1_000  # lines of a timeline, and faults
MAX_EXPECTATIONS = 1_000
MAX_REPEATS = 10_000  # times that one line is repeated
MAX_SIZE = 4 * 1024 * 1024  # bytes of a scenario file
MAX_COUNT = 10_000  # machines that a group says only the number of

_PART = r"\d+(\.\d+)?\s*([Mm][Ss]|[Mm][Ii][Nn]|[DdHhMmSs])"
_ISO = r"[Pp](\d+[Dd])?([Tt](\d+[HhMmSs])+)?"
DURATION = rf"^\s*(\d+(\.\d+)?|({_PART}\s*)+|{_ISO})\s*$"

Length = Annotated[
    str | int | float,
    Meta(extra_json_schema={"pattern": DURATION, "minimum": 0, "examples": ["30s", "1h30m"]}),
]
Name = Annotated[str, Meta(extra_json_schema={"pattern": f"^{NAME}$", "maxLength": MAX_NAME})]


def says(text: str, **more: Any) -> Meta:
    return Meta(description=text, extra_json_schema=more or None)


class Entry(
    msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, rename="kebab"
):
    """What stands in a file."""


Who = Annotated[
    Name | Annotated[list[Name], Meta(extra_json_schema={"minItems": 1})],
    says(
        "Which machine or machines; 'any': whoever; 'each': every machine that the event is about;"
        " 'own': one of those."
    ),
]


class MomentEntry(Entry, kw_only=True):
    """That it happens, by whom and how soon."""

    by: Who | None = None
    within: Annotated[Length | None, says("No later than this after it could be seen.")] = None
    ahead: Annotated[Length | None, says("At least so long before its NotBefore.")] = None


Moments = Annotated[MomentEntry | bool, says("true: at some time; false: never; or how.")]


class EventExpected(Entry, kw_only=True):
    """What is to become of every event that goes by this name."""

    event: Annotated[Name, says("The name of the line that raises it.")]
    of: Annotated[Name, says("Only those that are about this machine.")] = ""
    raised: Moments | None = None
    seen: Moments | None = None
    prepared: Moments | None = None
    approved: Moments | None = None
    started: Moments | None = None
    over: Moments | None = None
    finished: Moments | None = None
    withdrawn: Moments | None = None
    not_approved: Annotated[bool, says("Short for approved: false.")] = False
    in_time: Annotated[
        bool | None, says("Did every machine under test see it before it started?")
    ] = None


class ComplaintsExpected(Entry, kw_only=True):
    """The verdict has nothing to complain about, but what these rules say."""

    complaints: Annotated[list[str], says("Rules that may be broken; forewarn verdict --rules.")]


class CommandEntry(Entry, kw_only=True):
    exit: Annotated[int | None, says("What it exits with, by itself or once told to end.")] = None
    running: Annotated[bool | None, says("Is it still running at the end?")] = None
    crashed: Annotated[bool | None, says("Has it ended by itself, and not with 0?")] = None


class CommandExpected(Entry, kw_only=True):
    """What is to become of the program under test."""

    command: CommandEntry


NO_COMPLAINTS = "no-complaints"


class ScenarioEntry(Entry, kw_only=True):
    """A scenario: a fleet, what happens to it and when, and what is expected."""

    scenario: Annotated[Name, says("Its name.")]
    fleet: Annotated[Any, says("What a fleet file says, or the name of one beside this file.")]
    timeline: Annotated[list[Any], says("What happens, and when.", maxItems=MAX_STEPS)]
    about: Annotated[str, says("What it is about, in a sentence or two.")] = ""
    as_: Annotated[
        Name | list[Name] | None,
        says("The machine, or machines, that the program under test is; the first if not said."),
    ] = msgspec.field(name="as", default=None)
    faults: Annotated[list[Any], says("What goes wrong on purpose.", maxItems=MAX_STEPS)] = []
    expect: Annotated[list[Any], says("What is expected.", maxItems=MAX_EXPECTATIONS)] = []
    ends: Annotated[
        Length | None,
        says("When it ends, since the timeline began; when everything is over if not said."),
    ] = None

"""What is said of one call of the control API beside what its handler says itself, and the links
that several calls have in common."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

REPEATABLE = "it can be repeated as it is"
CHANGES_NOTHING = "it changes nothing"


class Makes(enum.Enum):
    """What a call answers with that is carried out once only, for making that answer again."""

    OUTCOME = "outcome"
    OUTCOMES = "outcomes"
    ROLLOUT = "rollout"
    GROUP = "group"
    RESTORED = "restored"


class Link(msgspec.Struct, frozen=True):
    """Where an answer leads: another call, with one parameter taken from the answer."""

    to: str
    parameter: str
    place: str  # in the answer's body, or in the request's path: a runtime expression


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tag: str
    summary: str
    status: int = 200
    makes: Makes | None = None  # it may be given a key
    keyless: str = CHANGES_NOTHING  # why it may not
    tagged: bool = False  # the answer has an ETag
    conditional: bool = False  # it takes If-Match
    paged: bool = False  # the answer may have a Link to the next page
    text: str = ""  # the body is a fleet, group or host, as YAML or JSON
    also: tuple[int, ...] = ()  # other statuses with an answer of the same shape
    refuses: tuple[int, ...] = ()  # beside those that follow from the rest
    links: tuple[Link, ...] = ()
    commands: tuple[str, ...] = ()  # that do the same
    says: str = ""  # the command with its arguments, as an example
    example: Any = None  # of the body

    @property
    def keyed(self) -> bool:
        return self.makes is not None


def event_links() -> tuple[Link, ...]:
    verbs = ("getEvent", "explainEvent", "approveEvent", "cancelEvent", "retryEvent", "finishEvent")
    return tuple(Link(verb, "id", "$response.body#/id") for verb in verbs)


def first_event() -> tuple[Link, ...]:
    return tuple(
        Link(verb, "id", "$response.body#/events/0/id")
        for verb in ("getEvent", "explainEvent", "cancelEvent", "approveEvent")
    )


def rollout_links() -> tuple[Link, ...]:
    verbs = ("getRollout", "explainRollout", "pauseRollout", "resumeRollout", "abortRollout")
    return tuple(Link(verb, "id", "$response.body#/id") for verb in verbs)


def listed(*verbs: str, parameter: str = "name") -> tuple[Link, ...]:
    return tuple(Link(verb, parameter, f"$response.body#/0/{parameter}") for verb in verbs)

"""The messages between control and a driver process (`support.message_stream` has their frames).

As between control and nodes, the first message in each direction contains the versions, and is the
only one that another version has to understand.
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.core.fleet import MAX_NAME
from forewarn.drivers.port import (
    Again,
    Done,
    Failed,
    Happened,
    Later,
    NotYet,
    Ok,
    Running,
    Seen,
    Task,
    Unknown,
    Veto,
)
from forewarn.support.message_stream import UnknownMessage

DRIVER_PROTOCOLS = (1,)  # the other side may have the last one, or the one before
DRIVER_URI = "forewarn:driver:"  # and the host's name, in the certificate of a driver process
MAX_HOSTS = 1_024  # of one driver process
PING_EVERY = 3.0  # seconds between two signs of life
MAX_TEXT = 1_000  # characters of a reason or of progress

# What a process may send, which may have been taken over. What its answers say about
# machines is checked when they are used (`driver`).
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Version: TypeAlias = Annotated[str, Meta(max_length=64)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]

Answer: TypeAlias = (
    Ok | Veto | Happened | NotYet | Later | Unknown | Done | Running | Again | Failed
)


class Verb(enum.StrEnum):
    CHECK = "check"
    PERFORM = "perform"
    OBSERVE = "observe"


# What the driver may answer to each call.
ANSWERS: dict[Verb, tuple[type[msgspec.Struct], ...]] = {
    Verb.CHECK: (Ok, Veto),
    Verb.PERFORM: (Done, Running, Again, Failed, Unknown),
    Verb.OBSERVE: (Happened, NotYet, Later, Unknown),
}


class DriverHello(msgspec.Struct, frozen=True, kw_only=True, tag="driver"):
    """The first message of a driver process. Later versions only add fields, with defaults."""

    protocols: Annotated[tuple[int, ...], Meta(max_length=16)]  # that it speaks
    version: Version  # of forewarn
    hosts: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_HOSTS)]
    driver: Name
    repeatable: bool  # as the driver says
    works: bool
    term: int = 0  # the highest of a control node that it has worked for
    instance: Version = ""  # of the process; empty: not known


class DriverWelcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    protocol: int
    version: str
    term: int = 0  # of this control node; 0: there is only one


class DriverRefused(msgspec.Struct, frozen=True, tag="unwelcome"):
    reason: str


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A call of the driver."""

    id: int
    verb: Verb
    task: Task


class DriverRenewed(msgspec.Struct, frozen=True, tag="renewed"):
    """A new certificate for the key of the process, and what it has to trust from now on."""

    certificate: str  # PEM
    trusted: str  # certificates of authorities (PEM)


class DriverPong(msgspec.Struct, frozen=True, tag="pong"):
    """The answer to a sign of life."""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The answer of the driver to a call."""

    id: Number
    answer: Answer


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The driver has raised an error instead of answering a call."""

    id: Number
    why: Text


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """How far a task is that is being carried out, for people."""

    id: Number  # of the call
    progress: Text


class DriverRenew(msgspec.Struct, frozen=True, tag="renew"):
    """Asks for a new certificate: half of the life of the one that it has is over."""


class DriverPing(msgspec.Struct, frozen=True, tag="ping"):
    """A sign of life."""


ToDriver: TypeAlias = (
    DriverWelcome | DriverRefused | Ask | DriverRenewed | DriverPong | UnknownMessage
)
FromDriver: TypeAlias = (
    DriverHello | Answered | Raised | Progressed | Seen | DriverRenew | DriverPing | UnknownMessage
)

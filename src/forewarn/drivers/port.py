"""The port: what a driver is asked, and what it may answer.

An attempt is on record before `perform` is called. Whenever one is on record whose end is not
known, after a crash for instance, `observe` is asked first. A driver never waits on domain
time: if something has to pass first it answers `Again`.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from forewarn.core import EventType, Source, Time
from forewarn.core.commands import Again, Done, Failed

__all__ = [
    "Again",
    "Checked",
    "Done",
    "Driver",
    "Failed",
    "Happened",
    "NotYet",
    "Observed",
    "Ok",
    "Part",
    "Performed",
    "Task",
    "TaskMachine",
    "Unknown",
    "Veto",
]


class TaskMachine(msgspec.Struct, frozen=True):
    name: str
    host: str = ""
    addresses: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True):
    """One of several events that are carried out together, and its machines."""

    event: str
    group: str
    machines: tuple[str, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as a driver needs to know it."""

    event: str
    group: str
    type: EventType
    source: Source
    machines: tuple[TaskMachine, ...]  # those still there and still concerned
    host: str = ""  # the host that is worked on, if it is one: everything on it goes together
    moves: bool = False  # a live migration
    parts: tuple[Part, ...] = ()  # the events that are carried out as one with it, itself included
    hosts: tuple[str, ...] = ()  # where machines could best be moved to
    known_hosts: frozenset[str] = frozenset()  # where they could be at all, afterwards
    duration: int = -1
    attempt: int = 0
    started_at: Time | None = None
    now: Time


class Ok(msgspec.Struct, frozen=True):
    pass


class Veto(msgspec.Struct, frozen=True):
    why: str


class Happened(msgspec.Struct, frozen=True):
    moved: dict[str, str] = {}
    said: str = ""


class NotYet(msgspec.Struct, frozen=True):
    pass


class Unknown(msgspec.Struct, frozen=True):
    why: str
    said: str = ""


Checked: TypeAlias = Ok | Veto
Observed: TypeAlias = Happened | NotYet | Unknown
Performed: TypeAlias = Done | Again | Failed | Unknown  # Unknown: it is observed right after


class Driver(Protocol):
    @property
    def repeatable(self) -> bool:
        """May it be asked again when nobody knows whether it happened?"""
        ...

    async def check(self, task: Task) -> Checked: ...

    async def observe(self, task: Task) -> Observed: ...

    async def perform(self, task: Task) -> Performed: ...

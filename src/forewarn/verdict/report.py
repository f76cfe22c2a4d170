"""A verdict: what each machine did about each event, and what was wrong with it. Values only."""

from __future__ import annotations

import msgspec


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client did wrong, or may come to grief with."""

    rule: str
    machine: str
    event: str = ""
    at: float  # seconds since 1970, on the service's clock
    says: str


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as one machine of its group went through it. Times as in a trace."""

    machine: str
    event: str
    type: str
    source: str = ""
    concerned: bool = True  # is the machine one of its Resources?
    visible: float  # from when on the machine could have seen it
    not_before: float | None = None
    seen: float | None = None  # when the machine was first shown it
    statuses: tuple[str, ...] = ()  # that it was shown, in that order
    prepared: float | None = None  # when it said that it is ready
    approved: float | None = None  # when somebody of the group, or an operator, did
    approved_by: str = ""
    started: float | None = None
    over: float | None = None
    ending: str = ""  # finished or withdrawn
    in_time: bool | None = None  # None: there was nothing to be in time for


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine asked."""

    machine: str
    polls: int = 0
    every: float | None = None  # seconds between two polls: the median
    longest: float | None = None  # and the longest
    versions: dict[str, int] = {}
    headers: dict[str, str] = {}  # that it sent, as it last did
    statuses: dict[str, int] = {}  # that it was answered
    faults: dict[str, int] = {}  # that it met


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    courses: tuple[Course, ...] = ()
    conducts: tuple[Conduct, ...] = ()
    complaints: tuple[Complaint, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.complaints

"""The values of a verdict: complaints, courses of events, and how each machine polled.

Times are seconds since 1970 on the service's clock, as in a trace; lengths are seconds.
"""

from __future__ import annotations

import msgspec

from forewarn.verdict.rules import WRONG


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client did wrong, or may come to grief with."""

    rule: str
    severity: str = WRONG  # or note
    machine: str
    group: str = ""
    event: str = ""
    at: float  # the first time
    times: int = 1
    message: str  # what was seen, and what would have been right


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as one machine of its group went through it."""

    machine: str
    group: str = ""
    event: str
    type: str
    source: str = ""
    concerned: bool = True  # is the machine one of its Resources?
    visible: float  # from when on the machine could have seen it
    not_before: float | None = None
    notice: float | None = None  # from visible to not_before
    seen: float | None = None  # when the machine was first shown it
    seen_after: float | None = None  # after it was visible
    statuses: tuple[str, ...] = ()  # that it was shown, in that order
    polls: int = 0  # of this machine while the event was there
    prepared: float | None = None  # when it said that it is ready
    approved: float | None = None  # when somebody of the group, or an operator, did
    approved_by: str = ""
    margin: float | None = None  # from that approval to not_before
    started: float | None = None
    started_by: str = ""  # approval, not-before or failure
    impact: float | None = None  # when something was really done to the machines
    over: float | None = None
    ending: str = ""  # finished or withdrawn; empty: it is not known, or not over
    in_time: bool | None = None  # seen before it started; None: there was nothing to be in time for


class Unannounced(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was carried out without being shown to guests, so that none could prepare."""

    event: str
    group: str = ""
    type: str = ""
    source: str = ""
    machines: tuple[str, ...] = ()
    at: float  # when it was asked for
    impact: float | None = None  # when something was really done to the machines
    over: float | None = None


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine asked."""

    machine: str
    group: str = ""
    polls: int = 0  # for the document, however they were answered
    waits: int = 0  # of these, long-polls
    approvals: int = 0  # requests that approve
    every: float | None = None  # real seconds between two polls: the median of the last
    longest: float | None = None  # and the longest of all
    on_clock: float | None = None  # the median on the service's clock, which may be wound
    first: float | None = None  # poll
    last: float | None = None  # poll
    versions: dict[str, int] = {}  # that it asked with
    approval_versions: dict[str, int] = {}  # that it approved with
    headers: dict[str, str] = {}  # telling ones that it sent, as it last did
    statuses: dict[str, int] = {}  # that it was answered
    faults: dict[str, int] = {}  # that it met


class VerdictData(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a verdict holds; `verdict.Verdict` adds what one does with it."""

    at: float | None = None  # the last that was heard
    courses: tuple[Course, ...] = ()
    conducts: tuple[Conduct, ...] = ()
    unannounced: tuple[Unannounced, ...] = ()
    complaints: tuple[Complaint, ...] = ()  # what is wrong first
    remarks: tuple[str, ...] = ()  # what this verdict does not know, or has forgotten

    @property
    def wrong(self) -> tuple[Complaint, ...]:
        return tuple(one for one in self.complaints if one.severity == WRONG)

    @property
    def notes(self) -> tuple[Complaint, ...]:
        return tuple(one for one in self.complaints if one.severity != WRONG)

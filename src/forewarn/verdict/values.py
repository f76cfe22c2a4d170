"""The values of a verdict: complaints, courses of events, and how each machine polled.

Times are seconds since 1970 on the service's clock, as in a trace; lengths are seconds.
"""

from __future__ import annotations

import msgspec

from forewarn.verdict.rules import WRONG


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a client has broken."""

    rule: str
    severity: str = WRONG  # or note
    machine: str
    group: str = ""
    event: str = ""
    at: float  # first time
    times: int = 1
    message: str  # what was observed, and what would be right


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one event on one machine of its group."""

    machine: str
    group: str = ""
    event: str
    type: str
    source: str = ""
    concerned: bool = True  # whether the machine is one of its Resources
    visible: float  # when it was first listed
    not_before: float | None = None
    notice: float | None = None  # from visible to not_before
    seen: float | None = None  # when the machine first got it in a document
    seen_after: float | None = None  # seconds after `visible`
    statuses: tuple[str, ...] = ()  # that the machine saw, in order
    polls: int = 0  # of this machine while the event was active
    prepared: float | None = None  # when it reported that it is ready
    approved: float | None = None  # when a machine of the group, or an operator, approved it
    approved_by: str = ""
    margin: float | None = None  # from `approved` to `not_before`
    started: float | None = None
    started_by: str = ""  # approval, not-before or failure
    impact: float | None = None  # when it was carried out
    over: float | None = None
    ending: str = ""  # finished or withdrawn; empty: unknown, or still active
    in_time: bool | None = (
        None  # seen before it started; None: it had no notice, or the machine is not affected
    )
    excuse: str = ""  # why it is not held against the machine that it did not see it in time


class Unannounced(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was carried out without being shown to guests, so that none could prepare."""

    event: str
    group: str = ""
    type: str = ""
    source: str = ""
    machines: tuple[str, ...] = ()
    at: float  # when it was requested
    impact: float | None = None  # when it was carried out
    over: float | None = None


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine polled."""

    machine: str
    group: str = ""
    polls: int = 0  # whatever the answer was
    waits: int = 0  # long-polls among them
    approvals: int = 0  # requests that approve
    every: float | None = None  # median of the last intervals between polls, in real seconds
    longest: float | None = None  # longest interval, in real seconds
    on_clock: float | None = None  # median interval on the service's clock, which may be virtual
    first: float | None = None  # time of the first poll
    last: float | None = None  # time of the last poll
    versions: dict[str, int] = {}  # of polls
    approval_versions: dict[str, int] = {}  # of approvals
    headers: dict[str, str] = {}  # the last values of some request headers
    statuses: dict[str, int] = {}  # of answers
    faults: dict[str, int] = {}  # in answers


class VerdictData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a verdict; `verdict.Verdict` adds methods."""

    at: float | None = None  # time of the last line
    courses: tuple[Course, ...] = ()
    conducts: tuple[Conduct, ...] = ()
    unannounced: tuple[Unannounced, ...] = ()
    complaints: tuple[Complaint, ...] = ()  # wrong ones first
    remarks: tuple[str, ...] = ()  # what is missing from this verdict

    @property
    def wrong(self) -> tuple[Complaint, ...]:
        return tuple(item for item in self.complaints if item.severity == WRONG)

    @property
    def notes(self) -> tuple[Complaint, ...]:
        return tuple(item for item in self.complaints if item.severity != WRONG)

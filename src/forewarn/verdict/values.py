"""The values of a verdict: complaints, courses of events, and how each machine polled.

Times are seconds since 1970 on the service's clock, as in a trace; lengths are seconds.
"""

from __future__ import annotations

import msgspec

from forewarn.verdict.rules import WRONG


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a client has broken. Times are seconds since 1970."""

    rule: str
    """The name of the rule."""
    severity: str = WRONG
    """`wrong`, or `note` for what may be intended."""
    machine: str
    """The machine whose client it was; empty if it is about all."""
    group: str = ""
    """The group of the machine."""
    event: str = ""
    """The id of the event that it is about; empty if it is about none."""
    at: float
    """When it was first observed."""
    times: int = 1
    """How often it was observed."""
    message: str
    """What was observed, and what would be right."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one event on one machine of its group. Times are seconds since 1970."""

    machine: str
    """The machine."""
    group: str = ""
    """Its group."""
    event: str
    """The id of the event."""
    type: str
    """The type of the event."""
    source: str = ""
    """Who has caused it: `Platform` or `User`."""
    concerned: bool = True
    """Whether the machine is one of its Resources."""
    visible: float
    """When it was first listed."""
    not_before: float | None = None
    """Its NotBefore."""
    notice: float | None = None
    """Seconds from `visible` to `not_before`."""
    seen: float | None = None
    """When the machine first got it in a document."""
    seen_after: float | None = None
    """Seconds from `visible` to `seen`."""
    statuses: tuple[str, ...] = ()
    """The statuses that the machine saw, in order."""
    polls: int = 0
    """How often the machine polled while the event was active."""
    prepared: float | None = None
    """When the machine reported that it is ready."""
    approved: float | None = None
    """When a machine of the group, or an operator, approved it."""
    approved_by: str = ""
    """Who approved it: the machine, or `operator`."""
    margin: float | None = None
    """Seconds from `approved` to `not_before`."""
    started: float | None = None
    """When it started."""
    started_by: str = ""
    """Why it started: `approval`, `not-before` or `failure`."""
    impact: float | None = None
    """When it was carried out."""
    over: float | None = None
    """When it was no longer listed."""
    ending: str = ""
    """`finished` or `withdrawn`; empty if that is unknown, or it is still active."""
    in_time: bool | None = None
    """Whether the machine saw it before it started; None if it had no notice, or the machine is
    not affected."""
    excuse: str = ""
    """Why the machine is excused for not having seen it in time; empty if it is not."""


class Unannounced(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was carried out without being shown to guests, so that none could prepare."""

    event: str
    """The id of the event."""
    group: str = ""
    """The group of its machines."""
    type: str = ""
    """The type of the event."""
    source: str = ""
    """Who has caused it: `Platform` or `User`."""
    machines: tuple[str, ...] = ()
    """The machines that it affected."""
    at: float
    """When it was requested."""
    impact: float | None = None
    """When it was carried out."""
    over: float | None = None
    """When it ended."""


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine polled. Times are seconds since 1970."""

    machine: str
    """The machine."""
    group: str = ""
    """Its group."""
    polls: int = 0
    """How often it polled, whatever the answer was."""
    waits: int = 0
    """How many of the polls were long-polls."""
    approvals: int = 0
    """How many requests were approvals."""
    every: float | None = None
    """The median of the last intervals between polls, in real seconds."""
    longest: float | None = None
    """The longest interval between polls, in real seconds."""
    on_clock: float | None = None
    """The median interval on the service's clock, which may be virtual."""
    first: float | None = None
    """When it polled first."""
    last: float | None = None
    """When it polled last."""
    versions: dict[str, int] = {}
    """How many polls named each api-version."""
    approval_versions: dict[str, int] = {}
    """How many approvals named each api-version."""
    headers: dict[str, str] = {}
    """The last values of some request headers."""
    statuses: dict[str, int] = {}
    """How many answers had each status."""
    faults: dict[str, int] = {}
    """How many answers were changed by each kind of fault."""


class VerdictData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a verdict; `verdict.Verdict` adds methods."""

    at: float | None = None
    """The time of the last line that it was read from."""
    courses: tuple[Course, ...] = ()
    """The course of every event on every machine of its group."""
    conducts: tuple[Conduct, ...] = ()
    """How each machine polled."""
    unannounced: tuple[Unannounced, ...] = ()
    """Events that were carried out without being shown to guests."""
    complaints: tuple[Complaint, ...] = ()
    """The rules that clients have broken: what is wrong first, then notes."""
    remarks: tuple[str, ...] = ()
    """What is missing from this verdict, and why."""

    @property
    def wrong(self) -> tuple[Complaint, ...]:
        """The complaints about what is wrong."""
        return tuple(item for item in self.complaints if item.severity == WRONG)

    @property
    def notes(self) -> tuple[Complaint, ...]:
        """The complaints about what may be intended."""
        return tuple(item for item in self.complaints if item.severity != WRONG)

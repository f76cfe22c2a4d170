"""The shapes of the control API, for both sides of it. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

import msgspec

from forewarn.control.schema import types as w


class Machine(msgspec.Struct, kw_only=True):
    name: str
    group: str
    kind: w.KindName
    update_domain: int
    fault_domain: int
    addresses: list[str] = []
    host: str = ""
    spot: bool = False
    gone: str = ""
    labels: dict[str, str] = {}  # its group's, overlaid with its own
    metadata_url: str = ""
    polls: int = 0
    last_poll: w.Moment | None = None
    api_version: str = ""
    events: list[str] = []


class Restored(Machine, kw_only=True):
    """A machine that is there again, and what whoever brought it back should know."""

    notes: list[str] = []


class Group(msgspec.Struct, kw_only=True):
    name: str
    kind: w.KindName
    enabled: bool
    incarnation: int
    machines: list[str]
    labels: dict[str, str] = {}
    events: list[str] = []
    user_event_limit: int | None = None
    auto_approve: list[w.TypeName] = []
    all_instances_down: bool = False
    terminate_notice: float | None = None  # seconds; None: not told of deletes


class Approval(msgspec.Struct, kw_only=True):
    by: str
    at: w.Moment


class Event(msgspec.Struct, kw_only=True):
    id: str
    group: str
    type: w.TypeName
    status: w.StatusName
    source: w.SourceName
    machines: list[str]
    update_domain: int
    not_before: w.Moment
    description: str
    duration: int
    raised_at: w.Moment
    raised_by: str
    listed: bool
    unannounced: bool = False
    approved: Approval | None = None
    started_at: w.Moment | None = None
    ended_at: w.Moment | None = None
    ending: str = ""
    host: str = ""
    cause: str = ""
    ready: list[str] = []  # machines that said they are
    held: str = ""  # why it waits for an operator's word (retry or finish), if it does


class Outcome(Event, kw_only=True):
    """The event that a verb was about, as it is now, and what whoever asked should know."""

    notes: list[str] = []


class Outcomes(msgspec.Struct, kw_only=True):
    """The events that a verb was about, as they are now."""

    events: list[Event] = []
    notes: list[str] = []


class Hold(msgspec.Struct, kw_only=True):
    kind: w.HoldKind
    message: str
    since: w.Moment
    until: w.Moment | None = None
    waits_for: list[str] = []
    unblocked_by: str = ""


class Explanation(msgspec.Struct, kw_only=True):
    event: Event
    message: str
    holds: list[Hold] = []
    seen_by: dict[str, w.Moment] = {}


class ScheduleRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.at_most_one_of("notice", "not_before")

    type: w.TypeName
    machines: w.Names
    notice: w.Notice | None = None  # seconds
    not_before: w.Moment | None = None
    short_notice: bool = False
    description: w.Words = ""
    duration: w.Impact = -1
    source: w.SourceName = "Platform"


class Host(msgspec.Struct, kw_only=True):
    name: str
    health: w.HealthName
    labels: dict[str, str] = {}
    since: w.Moment | None = None  # when its health last changed
    note: str = ""
    machines: list[str] = []
    events: list[str] = []  # planned or under way for the host itself


class HostPlan(msgspec.Struct, kw_only=True):
    """Events that go together, or one that goes alone, and what they wait for."""

    events: list[Event]
    message: str
    holds: list[Hold] = []


class HostExplanation(msgspec.Struct, kw_only=True):
    name: str
    health: w.HealthName
    message: str
    machines: list[str] = []
    plans: list[HostPlan] = []


class MaintainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.at_most_one_of("notice", "not_before")

    mode: w.MaintenanceMode
    evacuate: bool = False
    notice: w.Notice | None = None  # seconds
    not_before: w.Moment | None = None
    short_notice: bool = False
    description: w.Words | None = None
    duration: w.Impact | None = None


class DegradeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    notice: w.Notice | None = None  # seconds
    note: str = ""


class FailRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    note: str = ""


class FailMachineRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: w.TypeName = "Redeploy"


class ScaleInRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.exactly_one_of("count", "to")

    count: int | None = None  # how many machines to delete
    to: int | None = None  # or how many are to stay


class PolicyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is; null is no limit, and no notice of deletes."""

    user_event_limit: int | msgspec.UnsetType | None = msgspec.UNSET
    auto_approve: list[w.TypeName] | msgspec.UnsetType = msgspec.UNSET
    all_instances_down: bool | msgspec.UnsetType = msgspec.UNSET
    terminate_notice: float | msgspec.UnsetType | None = msgspec.UNSET  # seconds


class FinishRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: str


class AdvanceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.exactly_one_of("by", "to")

    by: float | None = None  # seconds
    to: w.Moment | None = None


class ResumeClockRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    speed: float = 1.0  # seconds in one of real time


class Clock(msgspec.Struct, kw_only=True):
    now: w.Moment
    virtual: bool
    speed: float = 1.0  # divides durations
    running_speed: float = 1.0  # by itself, 0: it stands still until it is wound
    steady_since: w.Moment | None = None
    next_due: w.Moment | None = None
    untrusted: str | None = None  # why the wall clock is not followed


class AcceptedClock(Clock, kw_only=True):
    before: w.Moment  # the service's time until then
    notes: list[str] = []


class Status(msgspec.Struct, kw_only=True):
    version: str
    clock: Clock
    metadata: str  # the first of metadata_urls; empty: guests do not ask on sockets
    metadata_urls: list[str] = []
    groups: int
    machines: int
    events: int


class HealthReport(msgspec.Struct, kw_only=True):
    """How it is as a whole, and each part: `ok`, or what is wrong with it."""

    status: str  # ok, or failing
    parts: dict[str, str]


class Mistake(msgspec.Struct, kw_only=True):
    """What is wrong at one place of a body, or with one parameter."""

    pointer: str  # JSON Pointer, or the name of a parameter
    detail: str


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """RFC 9457. What does not apply is left out."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    instance: str = ""  # the request's id, which the service's log has as well
    did_you_mean: str = ""
    line: int | None = None  # of a fleet file
    errors: list[Mistake] = []


def time_of(at: int) -> datetime:
    """Microseconds since 1970 as a time that people and JSON know."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


def instant_of(time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError("a time needs its zone, for example a trailing Z")
    whole = int(time.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + time.microsecond

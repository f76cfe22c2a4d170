"""The shapes of the control API, for both sides of it. Times are RFC 3339, durations seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc

BACKUP_HEADER = "Forewarn-Copy"  # of the response that is a backup: its BackupContents, as JSON
SQLITE = "application/vnd.sqlite3"


class Machine(msgspec.Struct, kw_only=True):
    name: str
    group: str
    kind: Annotated[w.KindName, doc("Kind of its group.")]
    update_domain: Annotated[int, doc("Of a group, one update domain is disturbed at a time.")]
    fault_domain: Annotated[int, doc("Machines of one fault domain can fail together.")]
    addresses: Annotated[list[str], doc("Addresses that its requests come from.")] = []
    host: Annotated[str, doc("Host it is on; empty: none.")] = ""
    spot: Annotated[
        bool, doc("Whether it is a spot machine, which can be evicted at any time.")
    ] = False
    gone: Annotated[str, doc("Why the machine no longer exists; empty while it does.")] = ""
    labels: Annotated[dict[str, str], doc("Labels of its group, overlaid with its own.")] = {}
    metadata_url: Annotated[str, doc("URL to poll as this machine.")] = ""
    polls: Annotated[int, doc("How often it has polled.")] = 0
    last_poll: Annotated[w.Moment | None, doc("When it last polled.")] = None
    api_version: Annotated[str, doc("Newest api-version that it has used.")] = ""
    events: Annotated[list[str], doc("Ids of its active events.")] = []


class Restored(Machine, kw_only=True):
    """A machine that is there again, and what whoever brought it back should know."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Group(msgspec.Struct, kw_only=True):
    name: str
    kind: Annotated[w.KindName, doc("Kind of the group.")]
    enabled: Annotated[bool, doc("Whether its machines poll for events.")]
    incarnation: Annotated[
        int, doc("DocumentIncarnation of the document that its machines are shown.")
    ]
    machines: Annotated[list[str], doc("Names of its machines.")]
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    events: Annotated[list[str], doc("Ids of its active events.")] = []
    user_event_limit: Annotated[
        int | None, doc("How many users' events may be Scheduled at a time; null: any number.")
    ] = None
    auto_approve: Annotated[
        list[w.TypeName], doc("Users' events of these types start without approval.")
    ] = []
    all_instances_down: Annotated[
        bool, doc("Approve users' events while all machines of the group are down.")
    ] = False
    terminate_notice: Annotated[
        float | None, doc("Seconds of notice before a delete; null: deletes are not announced.")
    ] = None


class Approval(msgspec.Struct, kw_only=True):
    by: Annotated[str, doc("Who approved it.")]
    at: Annotated[w.Moment, doc("When.")]


class Event(msgspec.Struct, kw_only=True):
    id: str
    group: str
    type: Annotated[w.TypeName, doc("Type of the event.")]
    status: Annotated[w.StatusName, doc("Status of the event.")]
    source: Annotated[w.SourceName, doc("Platform, or User if a user asked for it.")]
    machines: Annotated[list[str], doc("Names of the machines it is about.")]
    update_domain: Annotated[int, doc("Of a group, one update domain is disturbed at a time.")]
    not_before: Annotated[w.Moment, doc("Earliest start.")]
    description: Annotated[str, doc("Text shown to guests.")]
    duration: Annotated[int, doc("Seconds that the impact takes; 0: none, -1: unknown.")]
    raised_at: Annotated[w.Moment, doc("When it was announced.")]
    raised_by: Annotated[str, doc("Who announced it.")]
    listed: Annotated[bool, doc("Whether its machines have been shown it.")]
    unannounced: Annotated[
        bool, doc("Whether it is carried out without ever being shown to guests.")
    ] = False
    approved: Annotated[Approval | None, doc("Who approved it and when; null if nobody has.")] = (
        None
    )
    started_at: Annotated[w.Moment | None, doc("When it started.")] = None
    ended_at: Annotated[w.Moment | None, doc("When it ended; null while it has not.")] = None
    ending: Annotated[str, doc("How it ended; empty while it has not.")] = ""
    host: Annotated[str, doc("Host whose maintenance it is; empty: none.")] = ""
    cause: Annotated[str, doc("What caused it: a rollout's step, or maintenance of a host.")] = ""
    ready: Annotated[list[str], doc("Machines that reported that they are ready.")] = []
    held: Annotated[
        str, doc("Why it waits for an operator to retry or finish it; empty if it does not.")
    ] = ""


class Outcome(Event, kw_only=True):
    """The event that a verb was about, as it is now, and what whoever asked should know."""

    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Outcomes(msgspec.Struct, kw_only=True):
    """The events that a verb was about, as they are now."""

    events: Annotated[list[Event], doc("The events, as they are now.")] = []
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Hold(msgspec.Struct, kw_only=True):
    kind: Annotated[w.HoldKind, doc("What kind of hold it is.")]
    message: Annotated[str, doc("The same as one sentence.")]
    since: Annotated[w.Moment, doc("Since when.")]
    until: Annotated[w.Moment | None, doc("Latest time at which that ends, if there is one.")] = (
        None
    )
    waits_for: Annotated[list[str], doc("Ids of the events that it waits for.")] = []
    unblocked_by: Annotated[str, doc("Who or what can unblock it.")] = ""


class Explanation(msgspec.Struct, kw_only=True):
    event: Event
    message: Annotated[str, doc("The same as one sentence.")]
    holds: Annotated[list[Hold], doc("What holds it back.")] = []
    seen_by: Annotated[dict[str, w.Moment], doc("When each machine was first shown it.")] = {}


class ScheduleRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.at_most_one_of("notice", "not_before")

    type: Annotated[w.TypeName, doc("Type of the event.")]
    machines: Annotated[w.Names, doc("Names of the machines, all of one group.")]
    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; if left out, the type's promised notice."),
    ] = None
    not_before: Annotated[w.Moment | None, doc("Earliest start, instead of a notice.")] = None
    short_notice: Annotated[bool, doc("Allow less notice than is promised.")] = False
    description: Annotated[w.Text, doc("Text shown to guests.")] = ""
    duration: Annotated[w.Impact, doc("Seconds that the impact takes; 0: none, -1: unknown.")] = -1
    source: Annotated[w.SourceName, doc("Platform, or User if a user asked for it.")] = "Platform"


class Host(msgspec.Struct, kw_only=True):
    name: str
    health: Annotated[w.HealthName, doc("Health of the host.")]
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    since: Annotated[w.Moment | None, doc("When its health last changed.")] = None
    note: Annotated[str, doc("Free text by whoever did it.")] = ""
    machines: Annotated[list[str], doc("Names of the machines on it.")] = []
    events: Annotated[
        list[str], doc("Ids of the events planned or under way for the host itself.")
    ] = []


class HostPlan(msgspec.Struct, kw_only=True):
    """Events that go together, or one that goes alone, and what they wait for."""

    events: Annotated[
        list[Event], doc("Events that are carried out together, or one that is carried out alone.")
    ]
    message: Annotated[str, doc("The same as one sentence.")]
    holds: Annotated[list[Hold], doc("What holds it back.")] = []


class HostExplanation(msgspec.Struct, kw_only=True):
    name: str
    health: Annotated[w.HealthName, doc("Health of the host.")]
    message: Annotated[str, doc("The same as one sentence.")]
    machines: list[str] = []
    plans: list[HostPlan] = []


class MaintainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.at_most_one_of("notice", "not_before")

    mode: Annotated[
        w.MaintenanceMode, doc("What the maintenance means for the machines on the host.")
    ]
    evacuate: Annotated[bool, doc("Empty the host machine by machine instead.")] = False
    notice: Annotated[
        w.Notice | None,
        doc("Seconds between announcement and start; if left out, the type's promised notice."),
    ] = None
    not_before: Annotated[w.Moment | None, doc("Earliest start, instead of a notice.")] = None
    short_notice: Annotated[bool, doc("Allow less notice than is promised.")] = False
    description: Annotated[w.Text | None, doc("Text shown to guests.")] = None
    duration: Annotated[
        w.Impact | None, doc("Seconds that the impact takes; 0: none, -1: unknown.")
    ] = None


class DegradeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    notice: Annotated[w.Notice | None, doc("Seconds until its machines are redeployed.")] = None
    note: Annotated[str, doc("Free text by whoever did it.")] = ""


class FailRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    note: Annotated[str, doc("Free text by whoever did it.")] = ""


class FailMachineRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    type: Annotated[w.TypeName, doc("Type of the event that the failure is shown as.")] = "Redeploy"


class ScaleInRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.exactly_one_of("count", "to")

    count: Annotated[int | None, doc("How many machines to delete.")] = None
    to: Annotated[int | None, doc("Or how many machines are to remain.")] = None


class PolicyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is; null is no limit, and no notice of deletes."""

    user_event_limit: Annotated[
        int | msgspec.UnsetType | None,
        doc("How many users' events may be Scheduled at a time; null: any number."),
    ] = msgspec.UNSET
    auto_approve: Annotated[
        list[w.TypeName] | msgspec.UnsetType,
        doc("Users' events of these types start without approval."),
    ] = msgspec.UNSET
    all_instances_down: Annotated[
        bool | msgspec.UnsetType,
        doc("Approve users' events while all machines of the group are down."),
    ] = msgspec.UNSET
    terminate_notice: Annotated[
        float | msgspec.UnsetType | None,
        doc("Seconds of notice before a delete; null: deletes are not announced."),
    ] = msgspec.UNSET


class FinishRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, doc("Reason; it is recorded in the history.")]


class AdvanceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    extra_schema: ClassVar = w.exactly_one_of("by", "to")

    by: Annotated[float | None, doc("By how many seconds.")] = None
    to: Annotated[w.Moment | None, doc("Or until when.")] = None


class ResumeClockRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    speed: Annotated[float, doc("Seconds of the virtual clock in one second of real time.")] = 1.0


class Clock(msgspec.Struct, kw_only=True):
    now: w.Moment
    virtual: bool
    speed: Annotated[float, doc("Durations are divided by it.")] = 1.0
    running_speed: Annotated[
        float,
        doc("Seconds per second at which it runs by itself; 0: it stands still until advanced."),
    ] = 1.0
    steady_since: w.Moment | None = None
    next_due: Annotated[w.Moment | None, doc("When something happens next.")] = None
    untrusted: Annotated[str | None, doc("Why the wall clock is not followed; null if it is.")] = (
        None
    )


class AcceptedClock(Clock, kw_only=True):
    before: Annotated[w.Moment, doc("The service's time until then.")]
    notes: Annotated[list[str], doc("What the caller should know about the result.")] = []


class Status(msgspec.Struct, kw_only=True):
    version: str
    clock: Clock
    metadata: Annotated[
        str, doc("The first of metadata_urls; empty: guests are not served on sockets.")
    ]
    metadata_urls: Annotated[list[str], doc("URLs of the metadata endpoint.")] = []
    groups: int
    machines: int
    events: Annotated[int, doc("How many events are active.")]


class HealthReport(msgspec.Struct, kw_only=True):
    """How it is as a whole, and each part: `ok`, or what is wrong with it."""

    status: Annotated[str, doc("ok, or failing.")]
    parts: Annotated[dict[str, str], doc("By part of the service: ok, or what is wrong with it.")]


class BackupContents(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    commit: Annotated[int, doc("Number of its last commit.")]
    until: Annotated[w.Moment | None, doc("Time of its last commit.")] = None
    copied_at: w.Moment | None = None
    groups: int
    machines: int
    active_events: int
    tokens: Annotated[int, doc("How many tokens it has; it holds digests, not secrets.")]


class Mistake(msgspec.Struct, kw_only=True):
    """What is wrong at one place of a body, or with one parameter."""

    pointer: Annotated[str, doc("JSON Pointer into the body, or the name of a parameter.")]
    detail: str


UNDER_WAY = "#problem-under-way"  # how the type of that problem ends


class ProblemHint(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the caller could do about a problem."""

    kind: str  # force, short-notice, …
    about: str = ""  # the machine, host or token that it is about
    detail: str = ""  # in the terms of this API


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """RFC 9457. What does not apply is left out."""

    title: str
    status: Annotated[int, doc("Status of the response.")]
    detail: str
    type: Annotated[str, doc("Kind of the problem, a place on the page /docs.")] = "about:blank"
    instance: Annotated[str, doc("Id of the request, which the service's log has as well.")] = ""
    did_you_mean: str = ""
    line: Annotated[int | None, doc("Line of the fleet file.")] = None
    errors: list[Mistake] = []
    hint: ProblemHint | None = None


def time_of(at: int) -> datetime:
    """Microseconds since 1970 as a time that people and JSON know."""
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


def instant_of(time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError("a time needs its zone, for example a trailing Z")
    whole = int(time.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + time.microsecond

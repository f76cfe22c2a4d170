"""The values that a client returns: events, what has changed about them, documents, and the status
of the endpoint.

How they are read from an answer is `document.py`, what counts as a change `changes.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from forewarn.client.identity import Identity
from forewarn.wire.versions import FREEZE

EventType: TypeAlias = Literal["Freeze", "Reboot", "Redeploy", "Preempt", "Terminate"]
"""The types of event that are known today. `Event.type` may also be a later one."""

EventStatus: TypeAlias = Literal["Scheduled", "Started"]
"""The statuses of an event that are known today."""

EventSource: TypeAlias = Literal["Platform", "User"]
"""Who causes events, as far as is known today."""

if TYPE_CHECKING:
    AnyEventType: TypeAlias = EventType | str
    AnyEventStatus: TypeAlias = EventStatus | str
    AnyEventSource: TypeAlias = EventSource | str
else:  # msgspec accepts no union of Literal and str
    AnyEventType = AnyEventStatus = AnyEventSource = str

SCHEDULED = "Scheduled"  # an event with any other status has started
LAST = 253_402_300_799.0  # 9999-12-31T23:59:59Z


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event with the fields of the newest version. A field that the version in use does not have
    is empty or None."""

    id: str
    """The EventId: the same from the announcement of the event to its end."""

    type: AnyEventType
    """Freeze, Reboot, Redeploy, Preempt, Terminate, or a type that came later."""

    status: AnyEventStatus
    """Scheduled, Started once the impact has begun, or a status that came later, which counts as
    Started."""

    resources: tuple[str, ...] = ()
    """The names of the machines that the event affects. See `affects`."""

    not_before: datetime | None = None
    """The earliest start without an approval; None once the event has started."""

    description: str = ""
    """The description in the words of the service."""

    source: AnyEventSource = ""
    """Who causes the event: Platform or User."""

    duration: int | None = None
    """The announced length of the impact in seconds; None if it is unknown."""

    @property
    def started(self) -> bool:
        """Whether the event has started. Then the impact happens, and an approval has no effect."""
        return self.status != SCHEDULED

    def affects(self, machine: Identity | str) -> bool:
        """Return whether the event lists a machine. A document lists the events of all machines of
        a group.

        Args:
            machine: The identity of the machine, as `Client.identity` returns it, or its name.
        """
        identity = Identity(machine) if isinstance(machine, str) else machine
        return any(map(identity.matches, self.resources))

    def seconds_left(self, now: datetime) -> float | None:
        """Return the seconds until the event may start by itself; None if it has started or its
        start is unknown.

        Args:
            now: The current time by the service's clock, which is `Client.now()`.
        """
        return None if self.not_before is None else (self.not_before - now).total_seconds()


class ChangeKind(StrEnum):
    """What has happened to an event. Each is a string as well: `change.kind == "appeared"`."""

    APPEARED = "appeared"
    """The event is listed for the first time; it may have started already."""

    RESCHEDULED = "rescheduled"
    """The event has another NotBefore than before: it was postponed."""

    STARTED = "started"
    """The event has started: the impact happens now."""

    FINISHED = "finished"
    """The event is over."""

    WITHDRAWN = "withdrawn"
    """The event will not happen."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an event. `event` is the event as it was last listed: one that is over is not in
    the document any more."""

    kind: ChangeKind
    """What has happened."""

    event: Event
    """The event to which it has happened, as it was last listed."""

    at: datetime
    """When the client learned of it, by the service's clock."""

    earlier_not_before: datetime | None = None
    """NotBefore until then, if the event was rescheduled."""

    presumed: bool = False
    """Whether the event ended unobserved: it was never listed as started, but its NotBefore had
    passed or this client had approved it, so it is presumed to have finished."""


class Document(msgspec.Struct, frozen=True):
    """The events of this machine's group, as the service lists them."""

    incarnation: int | None
    """The number of the document; None if the service gave none. It may start over."""

    events: tuple[Event, ...] = ()
    """All events of the group, in the order of the document."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and what has changed since the previous one."""

    document: Document
    """The whole document, whichever changes were asked for."""

    changes: tuple[Change, ...]
    """What has changed since the previous snapshot."""

    at: datetime
    """When the document was received, by the service's clock."""

    hidden_types: frozenset[str] = frozenset()
    """The event types that the version in use does not list."""


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the endpoint, as a client sees it."""

    endpoint: str | None
    """The address of the endpoint; None if it has not been found yet."""

    version: str
    """The api-version in use."""

    long_poll: bool
    """Whether long-polls are in use. Otherwise the endpoint is polled."""

    problem: str
    """What is wrong, as a text for people; empty if the last answer was valid."""

    problem_kind: str = ""
    """What is wrong, in a word for programs, such as `refused`, `late`, `5xx` or `none-found`."""

    since: datetime
    """When the problem began, or ended, by the service's clock."""

    responses: int
    """The number of responses so far."""

    failures: int
    """The number of requests so far without a valid answer."""

    failures_by_kind: dict[str, int] = {}
    """The number of failures for each `problem_kind`."""


def is_short_freeze(event: Event, min_freeze: float) -> bool:
    """Return whether an event is a Freeze that is shorter than so many seconds. One of unknown
    duration is not."""
    return event.type == FREEZE and event.duration is not None and event.duration < min_freeze


def from_timestamp(seconds: float) -> datetime:
    """Return the time of a Unix timestamp; the last possible one for a clock beyond that."""
    return datetime.fromtimestamp(max(0.0, min(seconds, LAST)), UTC)

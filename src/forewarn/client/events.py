"""The values that a client returns: events, what has changed about them, documents, and the status
of the endpoint.

How they are read from an answer is `document.py`, what counts as a change `changes.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

SCHEDULED = "Scheduled"  # an event with any other status has started
LAST = 253_402_300_799.0  # 9999-12-31T23:59:59Z


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event with the fields of the newest version. A field that the version in use does not have
    is empty or None."""

    id: str
    type: str  # Freeze, Reboot, Redeploy, Preempt, Terminate, or a type that came later
    status: str  # Scheduled or Started
    resources: tuple[str, ...] = ()
    not_before: datetime | None = None  # None once it has started
    description: str = ""
    source: str = ""  # Platform or User
    duration: int | None = None  # seconds of impact; None: unknown

    @property
    def started(self) -> bool:
        return self.status != SCHEDULED

    def seconds_left(self, now: datetime) -> float | None:
        """Return the seconds until the event may start by itself; None if it has started or its
        start is unknown."""
        return None if self.not_before is None else (self.not_before - now).total_seconds()


class ChangeKind(StrEnum):
    APPEARED = "appeared"
    STARTED = "started"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an event. `event` is the event as it was last listed: one that is over is not in
    the document any more."""

    kind: ChangeKind
    event: Event
    at: datetime  # by the service's clock
    presumed: bool = False
    """The event ended unobserved: it was never listed as started, but its NotBefore had passed or
    this client had approved it, so it is presumed to have finished."""


class Document(msgspec.Struct, frozen=True):
    incarnation: int | None
    events: tuple[Event, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and what has changed since the previous one."""

    document: Document
    changes: tuple[Change, ...]
    at: datetime  # by the service's clock
    hidden_types: frozenset[str] = frozenset()  # event types that the version in use does not list


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the endpoint, as a client sees it."""

    endpoint: str | None  # None: not found yet
    version: str  # the api-version in use
    long_poll: bool  # whether long-polls are in use; else it is polled
    problem: str  # empty if the last answer was valid
    problem_kind: str = ""  # one of `endpoint_state.FAILURE_KINDS`, or of a few rarer ones
    since: datetime  # when `problem` began, or ended, by the service's clock
    responses: int  # received so far
    failures: int  # requests so far without a valid answer
    failures_by_kind: dict[str, int] = {}


def from_timestamp(seconds: float) -> datetime:
    """Return the time of a Unix timestamp; the last possible one for a clock beyond that."""
    return datetime.fromtimestamp(max(0.0, min(seconds, LAST)), UTC)

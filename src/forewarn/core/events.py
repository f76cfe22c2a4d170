"""Events: their types and what each promises, and the record that is kept of one.

The promises are a table. How an event moves from state to state is `lifecycle.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.core.time import DAY, MINUTE, SECOND, Duration, Time


class EventType(enum.Enum):
    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"


class Source(enum.Enum):
    PLATFORM = "Platform"
    USER = "User"


class Status(enum.Enum):
    SCHEDULED = "Scheduled"
    STARTED = "Started"
    FINISHED = "Finished"  # these two are never shown: a guest sees that the event is gone
    WITHDRAWN = "Withdrawn"

    @property
    def over(self) -> bool:
        return self in (Status.FINISHED, Status.WITHDRAWN)


class Promise(msgspec.Struct, frozen=True):
    """What a type of event means for the machines it names."""

    notice: Duration  # the minimum, and the default
    by_user: bool = False  # may a user ask for it?
    deletes: bool = False  # are its machines gone afterwards?
    waits: bool = True  # does it wait for a busy machine or a taken domain?


PROMISES: Mapping[EventType, Promise] = {
    EventType.FREEZE: Promise(15 * MINUTE),
    EventType.REBOOT: Promise(15 * MINUTE, by_user=True),
    EventType.REDEPLOY: Promise(10 * MINUTE, by_user=True),
    EventType.PREEMPT: Promise(30 * SECOND, deletes=True, waits=False),
    EventType.TERMINATE: Promise(5 * MINUTE, deletes=True, waits=False),
}

MAX_NOTICE: Duration = 90 * DAY
MAX_DURATION_SECONDS = 86_400
MAX_DESCRIPTION = 1_024  # characters
MAX_ACTIVE_EVENTS = 10_000  # of one group
MAX_EVENT_MACHINES = 1_000  # that one request for an event names
MAX_READY_NOTE = 1_024  # characters
MAX_READY_CHANGES = 16  # of one machine's word on one event: each is a commit, and is kept

UNKNOWN_DURATION = -1


class Approval(msgspec.Struct, frozen=True):
    by: str
    at: Time


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine's own word that it is prepared."""

    machine: str
    at: Time
    note: str = ""


class ReadinessChanges(msgspec.Struct, frozen=True):
    """How often a machine has changed its word on an event, taking it back included."""

    machine: str
    times: int


class Joint(msgspec.Struct, frozen=True):
    """Events of several groups that start, are carried out and end as one."""

    id: str
    groups: tuple[str, ...]  # in order; the first that is still concerned leads


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """When an event may start, approved or not: a window of whoever planned it."""

    opens: Time
    closes: Time | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the carrying out has come. While `open`, a driver is, or was, at work."""

    number: int
    at: Time
    open: bool = True
    next_at: Time | None = None
    note: str = ""  # what the driver said last, if it did not simply go well
    stuck: bool = False  # nobody knows whether it happened; an operator has to say


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    group: str
    type: EventType
    source: Source
    resources: tuple[str, ...]  # never changes after raising, nor does its order
    domain: int
    not_before: Time
    raised_at: Time
    by: str
    status: Status = Status.SCHEDULED
    description: str = ""
    duration: int = UNKNOWN_DURATION
    cause: str = ""  # what brought it about: unique per step of a longer process
    host: str = ""  # the host it is about, if it is about one
    joint: Joint | None = None
    span: Span | None = None
    moves: bool = False  # a live migration: its machines are on another host afterwards
    silent: bool = False  # carried out, but never shown to guests, now or later: unannounced
    failure: bool = False  # a sudden failure: directly Started, waits for nothing
    short_notice: bool = False  # raised on purpose with less notice than its type promises
    left: tuple[str, ...] = ()  # resources that have since moved to another host
    listed: bool = False  # has the group ever been shown it?
    ready: tuple[Ready, ...] = ()  # the machines that have said so, in that order
    spoken: tuple[ReadinessChanges, ...] = ()  # those that have ever said whether they are
    approved: Approval | None = None
    started_at: Time | None = None
    attempt: Attempt | None = None
    ended_at: Time | None = None
    ending: str = ""
    cancelled_by: str = ""  # who withdrew it; empty if it ended by itself or became pointless

    @property
    def promise(self) -> Promise:
        return PROMISES[self.type]

    @property
    def relocates(self) -> bool:
        """Are its machines on another host afterwards?"""
        return self.moves or self.type is EventType.REDEPLOY

    @property
    def host_bound(self) -> bool:
        """Is it about the hosts its machines are on, so that moving away settles it?"""
        return self.waits_for_domain

    @property
    def waits(self) -> bool:
        """Does it wait until its machines are free of other Started events?"""
        return self.promise.waits and not self.failure

    @property
    def waits_for_domain(self) -> bool:
        """Does it wait for its group's domain slot? Users do not, though they occupy it."""
        return self.waits and self.source is Source.PLATFORM


def log_fields(event: Event) -> dict[str, Any]:
    """The fields of every line in the log that is about an event."""
    return {
        "event_id": event.id,
        "type": event.type.value,
        "group": event.group,
        "machines": list(event.resources),
    }

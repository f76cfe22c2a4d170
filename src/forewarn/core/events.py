"""Events: their types, what each type means, and the state of one event.

`TYPE_TRAITS` is the one table of what a type means; everything that depends on a type reads it
instead of naming types. The names as guests see them are in `wire.versions`. How an event moves
from state to state is `lifecycle.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forewarn.core.time import MINUTE, SECOND, Duration, Time
from forewarn.core.windows.model import Span
from forewarn.support.limits import MAX_NOTICE_SECONDS


class Source(enum.Enum):
    PLATFORM = "Platform"
    USER = "User"


class Status(enum.Enum):
    SCHEDULED = "Scheduled"
    STARTED = "Started"
    # The last two are never shown: guests see that the event is no longer listed.
    FINISHED = "Finished"
    WITHDRAWN = "Withdrawn"

    @property
    def over(self) -> bool:
        return self is Status.FINISHED or self is Status.WITHDRAWN


class TypeTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a type of event means for the machines it names."""

    notice: Duration  # the minimum, and the default
    user_description: str = ""  # of an event that a user requested; empty: users cannot
    gone: str = ""  # state of its machines afterwards ("deleted"); empty: they still exist
    restarts: bool = False  # do its machines reboot?
    relocates: bool = False  # are they on another host afterwards?
    host_maintenance: bool = False  # can it be the maintenance of a whole host?
    waits: bool = True  # does it wait for busy machines and other update domains?
    coupled: bool = False  # do the events of this type in a group start together?
    sudden: bool = True  # does a cloud start it without notice if a machine fails?
    spot_only: bool = False  # does a cloud do this to spot machines only?
    scale_set_only: bool = False  # does a cloud announce it to regular scale set members only?
    arm_impact: str = ""  # Azure Resource Manager's name for its impact; empty: that of the type

    @property
    def by_user(self) -> bool:
        """Can a user request it?"""
        return bool(self.user_description)

    @property
    def deletes(self) -> bool:
        """Do its machines no longer exist afterwards?"""
        return bool(self.gone)

    @property
    def keeps_memory(self) -> bool:
        """Are its machines only paused, so that programs on them continue afterwards?"""
        return not self.restarts and not self.deletes


class EventType(enum.Enum):
    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"

    @property
    def traits(self) -> TypeTraits:
        return _TRAITS[self._value_]


TYPE_TRAITS: Mapping[EventType, TypeTraits] = {
    EventType.FREEZE: TypeTraits(notice=15 * MINUTE, host_maintenance=True, sudden=False),
    EventType.REBOOT: TypeTraits(
        notice=15 * MINUTE,
        user_description="Virtual machine is going to be restarted"
        " as requested by authorized user.",
        restarts=True,
        host_maintenance=True,
        arm_impact="Restart",
    ),
    EventType.REDEPLOY: TypeTraits(
        notice=10 * MINUTE,
        user_description="Virtual machine is going to be redeployed"
        " as requested by authorized user.",
        restarts=True,
        relocates=True,
    ),
    EventType.PREEMPT: TypeTraits(
        notice=30 * SECOND, gone="evicted", waits=False, sudden=False, spot_only=True
    ),
    EventType.TERMINATE: TypeTraits(
        notice=5 * MINUTE, gone="deleted", waits=False, coupled=True, scale_set_only=True
    ),
}

# Read dozens of times for every decision: a text is hashed faster than an enum.
_TRAITS: Mapping[str, TypeTraits] = {type.value: traits for type, traits in TYPE_TRAITS.items()}


FAILURE_TYPE = EventType.REDEPLOY  # as which a failure is shown, unless another one is given


def types_that(trait: Callable[[TypeTraits], bool]) -> tuple[EventType, ...]:
    """Return the types that have a trait, in the order of the table."""
    return tuple(type for type, traits in TYPE_TRAITS.items() if trait(traits))


MAX_NOTICE: Duration = MAX_NOTICE_SECONDS * SECOND
MAX_ACTIVE_EVENTS = 10_000  # of one group
MAX_READY_CHANGES = 16  # of one machine for one event: each is a commit in the history

UNKNOWN_DURATION = -1
ASSUMED_DURATION: Duration = 30 * MINUTE  # of a started event whose duration is unknown
IGNORES_WINDOWS = "it ignores windows and blackouts"  # in the history


class ApprovalKind(enum.Enum):
    """Who has approved an event, so that it may start before its NotBefore."""

    GUEST = "guest"
    OPERATOR = "operator"
    POLICY = "policy"
    NOBODY = "nobody"  # it is unannounced, so nobody is asked


class Approval(msgspec.Struct, frozen=True):
    by: str  # the name of the guest or operator, or the reason
    at: Time
    kind: ApprovalKind


class Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine's report that it is prepared for an event."""

    machine: str
    at: Time
    note: str = ""


class ReadinessChanges(msgspec.Struct, frozen=True):
    """How often a machine has changed its readiness for an event, in either direction."""

    machine: str
    times: int


class Joint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Events of several groups that start, are carried out and end as one."""

    id: str
    groups: tuple[str, ...]  # the event of the first group that still has one leads
    domain: int | None = None  # only machines of this update domain; None: all on the host


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt of the driver to carry out an event. While `open`, it has not been answered."""

    number: int
    at: Time
    open: bool = True
    next_at: Time | None = None
    note: str = ""  # the driver's last problem, if it had one
    stuck: bool = False  # whether it was carried out is unknown; an operator has to decide
    targets: dict[str, str] = {}  # by machine that it moves: the host that is reserved for it
    unsuitable: tuple[str, ...] = ()  # hosts that the driver has refused as targets
    begun: tuple[str, ...] = ()  # machines for which it is being carried out, by some answer
    no_host: bool = False  # it goes on when there is a host that can take its machines


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """That an event was carried out, and is over once these machines have polled again."""

    machines: tuple[str, ...]
    since: Time
    served: Duration  # the same instant, in time served


class Postponement(msgspec.Struct, frozen=True, kw_only=True):
    """That an event was postponed: by whom, and from when to when.

    Of joint events, another group may have asked. Groups learn nothing about each other, so both
    names are empty then; those of its own event have them.
    """

    by: str
    group: str  # whose policy has allowed it
    at: Time
    before: Time  # NotBefore until then
    after: Time


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    group: str
    type: EventType
    source: Source
    resources: tuple[str, ...]  # machines; neither they nor their order change after raising
    domain: int
    not_before: Time
    raised_at: Time
    by: str
    status: Status = Status.SCHEDULED
    description: str = ""
    duration: int = UNKNOWN_DURATION
    cause: str = ""  # what has caused it; unique for each step of a rollout
    ticket: str = (
        ""  # the operators' reference for it, such as a change request; guests do not see it
    )
    host: str = ""  # the host whose maintenance it is, if any
    joint: Joint | None = None
    span: Span | None = None
    ignore_windows: bool = False  # an operator lets it start outside of windows and in blackouts
    deadline: Time | None = None  # from then on, windows and blackouts no longer hold it
    postponed: tuple[Postponement, ...] = ()
    moves: bool = False  # its machines are on another host afterwards, whatever its type
    unannounced: bool = False  # carried out, but never shown to guests, now or later
    failure: bool = False  # a sudden failure: directly Started, waits for nothing
    short_notice: bool = False  # raised on purpose with less notice than its type promises
    left: tuple[str, ...] = ()  # resources that have moved to another host since
    listed: bool = False  # has the group ever been shown it?
    ready: tuple[Ready, ...] = ()  # reports of machines that are prepared, in order
    readiness_changes: tuple[ReadinessChanges, ...] = ()  # for each machine that has reported
    approved: Approval | None = None
    started_at: Time | None = None
    attempt: Attempt | None = None
    polling: tuple[str, ...] = ()  # machines that polled when it started, and should come back
    waiting: Waiting | None = None
    not_back: tuple[str, ...] = ()  # machines that had not polled again when it was over
    away: dict[str, float] = {}  # by machine: for how many seconds it stood still, if measured
    ended_at: Time | None = None
    ending: str = ""
    carried_out: bool = False  # it ended because the driver has carried it out
    cancelled_by: str = ""  # who withdrew it; empty if it ended by itself or became pointless
    abandoned: bool = False  # it has started, and an operator has declared that it did not happen

    @property
    def traits(self) -> TypeTraits:
        return _TRAITS[self.type._value_]

    @property
    def expected_end(self) -> Time | None:
        """When it should be over at the latest; None until it starts."""
        if self.started_at is None:
            return None
        known = self.duration != UNKNOWN_DURATION
        return self.started_at + (self.duration * SECOND if known else ASSUMED_DURATION)

    @property
    def held(self) -> bool:
        """Has an operator to decide, because it is unknown whether it was carried out?"""
        return self.attempt is not None and self.attempt.stuck and not self.status.over

    @property
    def relocates(self) -> bool:
        """Are its machines on another host afterwards?"""
        return self.moves or self.traits.relocates

    @property
    def host_bound(self) -> bool:
        """Does it concern the hosts of its machines, so that it is settled when they move away?"""
        return self.waits_for_domain

    @property
    def obeys_windows(self) -> bool:
        """Does it start only when the maintenance configurations of its machines allow it? What a
        user has asked for does not wait for that, nor does what cannot wait."""
        return self.waits_for_domain and not self.ignore_windows

    @property
    def waits(self) -> bool:
        """Does it wait until its machines are free of other Started events?"""
        return self.traits.waits and not self.failure

    @property
    def waits_for_domain(self) -> bool:
        """Does it wait while another update domain is in use? Users' events do not wait for it."""
        return self.waits and self.source is Source.PLATFORM


def log_fields(event: Event) -> dict[str, Any]:
    """Return the fields of every log line that is about an event."""
    return {
        "event_id": event.id,
        "type": event.type.value,
        "group": event.group,
        "machines": list(event.resources),
    }

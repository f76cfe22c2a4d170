"""Commands to a group, as values. Whether they are allowed is decided in `deciding`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, EventType, Joint, Source
from forewarn.core.fleet import GroupKind, Machine, Place, Placement, Policy
from forewarn.core.time import Duration, Time
from forewarn.core.windows.model import Span


class Define(msgspec.Struct, frozen=True, kw_only=True):
    """Define the group as the inventory describes it; machines not listed there are removed."""

    kind: GroupKind
    machines: tuple[Machine, ...]
    policy: Policy = Policy()
    place: Place = Place()
    labels: dict[str, str] = {}
    force: bool = False  # remove machines even if they have an active event
    observed: bool = False  # the hosts are what somebody has written down now
    placement: Placement | None = None  # which source counts for these; None: not decided
    placed: frozenset[str] = frozenset()  # machines whose hosts are certain, whatever is known
    kept: frozenset[str] = frozenset()  # machines about which it says nothing
    by: str = ""


class Enable(msgspec.Struct, frozen=True, kw_only=True):
    """Enable the group, because one of its machines has asked for the document."""


class Disable(msgspec.Struct, frozen=True, kw_only=True):
    by: str


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Let time act on the group. `seen` is the time of its last known GET, in time served."""

    seen: Duration = 0


class Raise(msgspec.Struct, frozen=True, kw_only=True):
    """Announce an event. Give a notice, an absolute time, or neither for the default notice."""

    id: str
    type: EventType
    machines: tuple[str, ...]
    by: str
    source: Source = Source.PLATFORM
    notice: Duration | None = None
    not_before: Time | None = None
    short_notice: bool = False  # the caller knows that the notice is below the promised minimum
    description: str = ""
    duration: int = UNKNOWN_DURATION
    ticket: str = ""
    cause: str = ""
    host: str = ""
    joint: Joint | None = None
    span: Span | None = None
    ignore_windows: bool = False  # start it outside of windows and in blackouts, too
    deadline: bool = False  # start it in a window before its time if there is one, or at its time
    moves: bool = False


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """Record a sudden failure: the event appears directly as Started."""

    id: str
    type: EventType
    machines: tuple[str, ...]
    by: str
    description: str = "Virtual machine has encountered a failure."
    cause: str = ""
    host: str = ""


class UserMaintenance(msgspec.Struct, frozen=True, kw_only=True):
    """Restart or redeploy one machine at the request of a user."""

    id: str
    type: EventType
    machine: str
    by: str
    cause: str = ""


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Evict a spot machine."""

    id: str
    machine: str
    by: str
    cause: str = ""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a machine: announced if its group's policy gives notice of deletes, else at once."""

    id: str
    machine: str
    by: str
    cause: str = ""


class SetPolicy(msgspec.Struct, frozen=True, kw_only=True):
    policy: Policy
    by: str


class Prepare(msgspec.Struct, frozen=True, kw_only=True):
    """Set whether a machine of the group is ready for an event."""

    id: str
    machine: str
    ready: bool = True
    note: str = ""
    by: str = ""  # who reports it; empty: the machine itself


class Approve(msgspec.Struct, frozen=True, kw_only=True):
    """Approve events as a guest: all ids or none. `over` are the ids of events that the group has
    been shown and that have ended since."""

    ids: tuple[str, ...]
    by: str
    over: frozenset[str] = frozenset()


class OperatorApprove(msgspec.Struct, frozen=True, kw_only=True):
    """Approve one event as an operator, whether guests are shown it or not."""

    id: str
    by: str
    ignore_windows: bool = False


class Postpone(msgspec.Struct, frozen=True, kw_only=True):
    """Move the NotBefore of an event that has not started. `group` has asked for it; whether it may
    is decided before, since the events of a joint maintenance move together."""

    id: str
    by: str
    group: str
    not_before: Time


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """Withdraw an event that has not started."""

    id: str
    by: str
    why: str = ""
    jointly: bool = False  # together with the other events of its joint maintenance


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The event was carried out and verified."""

    moved: dict[str, str] = {}
    output: str = ""  # of the driver, for people who read the history
    answer: str = ""  # a JSON object with what it has answered, for programs
    away: dict[str, float] = {}  # by machine: for how many seconds it stood still, as was measured


class Again(msgspec.Struct, frozen=True, tag="again"):
    """The event is being carried out; ask the driver again at `at`."""

    at: Time
    output: str = ""
    answer: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The event was certainly not carried out; it is tried again after a pause."""

    why: str
    output: str = ""
    answer: str = ""
    unsuitable: tuple[str, ...] = ()  # hosts that cannot be targets: others are chosen
    moved: dict[str, str] = {}  # machines that have moved all the same, and where to
    away: dict[str, float] = {}  # and for how many seconds these stood still


class Unclear(msgspec.Struct, frozen=True, tag="unclear"):
    """Whether the event was carried out is unknown, and trying again would not be safe."""

    why: str
    output: str = ""
    answer: str = ""


Outcome: TypeAlias = Done | Again | Failed | Unclear


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Record the outcome of one attempt of the driver."""

    id: str
    attempt: int
    outcome: Outcome
    begun: tuple[str, ...] = ()  # machines for which the driver was called, and has not failed
    no_host: bool = False  # it has failed because no host can take the machines that are left


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Try again to carry out an event, because an operator knows that it was not carried out."""

    id: str
    by: str


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Finish a Started event at the request of an operator."""

    id: str
    by: str
    reason: str
    moved: dict[str, str] = {}  # machines that have moved, and their hosts


class Abandon(msgspec.Struct, frozen=True, kw_only=True):
    """Give up a Started event at the request of an operator, because it did not happen."""

    id: str
    by: str
    reason: str


class RecordMove(msgspec.Struct, frozen=True, kw_only=True):
    """Record on which host a machine is, because somebody has moved it or has looked."""

    machine: str
    host: str
    by: str


class SuspectMove(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a machine may be on another host, because it has polled the node there."""

    machine: str
    host: str
    by: str


class AnswerOn(msgspec.Struct, frozen=True, kw_only=True):
    """Record that a machine is answered on its former host: the node of the one that it has moved
    to was cut off before it could be shown there. Or that this is over."""

    machine: str
    former: str  # empty: it is answered where it is
    host: str


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """Record that machines are back that were not: they have polled again."""

    machines: tuple[str, ...]


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """Bring back a machine that was evicted or deleted, or record that one is back which does not
    poll."""

    machine: str
    by: str


Command: TypeAlias = (
    Define
    | Enable
    | Disable
    | Tick
    | Raise
    | Fail
    | UserMaintenance
    | Evict
    | Delete
    | SetPolicy
    | Prepare
    | Approve
    | OperatorApprove
    | Postpone
    | Cancel
    | Answer
    | Retry
    | Finish
    | Abandon
    | RecordMove
    | SuspectMove
    | AnswerOn
    | Heard
    | Restore
)

"""What can be asked of a group. Who asks has been found out before; what is allowed is `decide`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from forewarn.core.events import UNKNOWN_DURATION, EventType, Joint, Source, Span
from forewarn.core.fleet import GroupKind, Machine, Place, Policy
from forewarn.core.time import Duration, Time


class Define(msgspec.Struct, frozen=True, kw_only=True):
    """Make the group what the inventory says; machines it does not name are removed."""

    kind: GroupKind
    machines: tuple[Machine, ...]
    policy: Policy = Policy()
    place: Place = Place()
    labels: dict[str, str] = {}
    force: bool = False  # also if a machine that is removed has an active event
    by: str = ""


class Enable(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the group asked for the document."""


class Disable(msgspec.Struct, frozen=True, kw_only=True):
    by: str


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed. `seen` is the last GET known of, in time served."""

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
    cause: str = ""
    host: str = ""
    joint: Joint | None = None
    span: Span | None = None
    moves: bool = False


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """A machine has failed: the event appears directly as Started."""

    id: str
    type: EventType
    machines: tuple[str, ...]
    by: str
    description: str = "Virtual machine has encountered a failure."
    cause: str = ""
    host: str = ""


class UserMaintenance(msgspec.Struct, frozen=True, kw_only=True):
    """A user asks for a restart or a redeploy of one machine."""

    id: str
    type: EventType
    machine: str
    by: str


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """A spot machine is taken back."""

    id: str
    machine: str
    by: str
    cause: str = ""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """A machine is deleted: announced if its group is told of deletes, else at once."""

    id: str
    machine: str
    by: str
    cause: str = ""


class SetPolicy(msgspec.Struct, frozen=True, kw_only=True):
    policy: Policy
    by: str


class Prepare(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the group says whether it is ready for an event."""

    id: str
    machine: str
    ready: bool = True
    note: str = ""


class Approve(msgspec.Struct, frozen=True, kw_only=True):
    """Guests' approval: all ids or none. `over` are those among them that the group was once
    shown and that have ended since."""

    ids: tuple[str, ...]
    by: str
    over: frozenset[str] = frozenset()


class OperatorApprove(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's approval of one event, shown or not."""

    id: str
    by: str


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    by: str
    why: str = ""
    jointly: bool = False  # the others of its joint are cancelled with it


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Carried out and checked. `moved` says where machines are now, if that changed."""

    moved: dict[str, str] = {}
    output: str = ""  # of the driver's program, for the history


class Again(msgspec.Struct, frozen=True, tag="again"):
    """Under way; ask again then."""

    at: Time
    output: str = ""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It certainly did not happen; it will be tried again after a pause."""

    why: str
    output: str = ""


class Unclear(msgspec.Struct, frozen=True, tag="unclear"):
    """Nobody can tell whether it happened, and trying again would not be safe."""

    why: str
    output: str = ""


Outcome: TypeAlias = Done | Again | Failed | Unclear


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver said to one attempt."""

    id: str
    attempt: int
    outcome: Outcome


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """An operator says: it did not happen, try again."""

    id: str
    by: str


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """An operator says: it is over."""

    id: str
    by: str
    reason: str


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """Bring a machine back that was evicted or deleted."""

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
    | Cancel
    | Answer
    | Retry
    | Finish
    | Restore
)

"""Types of the history and of the feed: what a commit changed, and the state after it.

The feed is enough to mirror the fleet without further requests: it has who did what (`changes`),
and the new state of everything that the commit changed. Times are RFC 3339.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.core import Event, Problem
from forewarn.control.schema.types import Moment, doc


class HistoryRecord(msgspec.Struct, kw_only=True):
    """A record of the history. Fields that do not apply are empty."""

    seq: Annotated[int, doc("Number of the record.")]
    at: Moment
    what: Annotated[str, doc("Kind of the change, for example `raised`.")]
    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")] = ""
    group: str = ""
    event: str = ""
    type: Annotated[str, doc("Type of the event, if there is one.")] = ""
    machines: list[str] = []
    host: Annotated[str, doc("Host that it concerns.")] = ""
    cause: Annotated[str, doc("Cause: the step of a rollout, or the maintenance of a host.")] = ""
    note: Annotated[str, doc("Note by the operator.")] = ""


class HistoryPage(msgspec.Struct, kw_only=True):
    """A page of the history."""

    records: list[HistoryRecord]
    next: Annotated[
        str,
        doc(
            "Cursor of the next page, to be passed as `before` (as `after` with `oldest_first`, or"
            " as `after_seq` if that was given); empty: there are no more records."
        ),
    ] = ""


class FeedChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A change, as in the history. Fields that do not apply are left out."""

    what: Annotated[str, doc("Kind of the change, for example `raised`.")]
    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")] = ""
    group: str = ""
    event: str = ""
    type: Annotated[str, doc("Type of the event, if there is one.")] = ""
    machines: list[str] = []
    host: Annotated[str, doc("Host that it concerns.")] = ""
    cause: Annotated[str, doc("Cause: the step of a rollout, or the maintenance of a host.")] = ""
    note: Annotated[str, doc("Note by the operator.")] = ""


class FeedMachine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A machine that changed, in its new state."""

    name: str
    group: str
    update_domain: Annotated[
        int, doc("Update domain. Only one update domain of a group is affected at a time.")
    ] = 0
    fault_domain: Annotated[
        int, doc("Fault domain. Machines of one fault domain can fail together.")
    ] = 0
    addresses: Annotated[list[str], doc("Source addresses of its requests.")] = []
    host: Annotated[str, doc("Host that it concerns.")] = ""
    spot: Annotated[
        bool, doc("Whether it is a spot machine, which can be evicted at any time.")
    ] = False
    labels: Annotated[dict[str, str], doc("Its own labels, without those of its group.")] = {}
    gone: Annotated[str, doc("Why the machine no longer exists; empty if it exists.")] = ""


class FeedGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A group that changed. Fields that have not changed are left out."""

    name: str
    enabled: Annotated[
        bool | None, doc("Whether Scheduled Events are enabled: its machines poll.")
    ] = None
    kind: Annotated[str | None, doc("Kind of the group.")] = None
    labels: Annotated[dict[str, str] | None, doc("Labels to select it by.")] = None


class FeedHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host that changed, in its new state."""

    name: str
    health: Annotated[str, doc("Health of the host.")] = "healthy"
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    since: Annotated[Moment | None, doc("Start of this state.")] = None
    note: Annotated[str, doc("Note by the operator.")] = ""


class FeedRollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rollout that changed, in its new state."""

    id: str
    type: Annotated[str, doc("Type of the event.")]
    paused: bool = False
    aborted: bool = False
    ended_at: Annotated[Moment | None, doc("When it ended; null until then.")] = None


class FeedCommit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A commit: changes that became durable and visible together."""

    seq: Annotated[int, doc("Number of the commit.")]
    at: Moment
    changes: list[FeedChange]
    events: Annotated[list[Event], doc("Events that changed, in their new state.")] = []
    machines: list[FeedMachine] = []
    machines_removed: list[str] = []
    groups: list[FeedGroup] = []
    hosts: list[FeedHost] = []
    hosts_removed: list[str] = []
    rollouts: list[FeedRollout] = []
    rollouts_removed: list[str] = []


class FeedHello(msgspec.Struct, kw_only=True):
    """The first message of a stream."""

    after: Annotated[int, doc("Number of the commit after which the stream starts.")]
    newest: Annotated[int, doc("Number of the newest commit.")]


class ChangesPage(msgspec.Struct, kw_only=True):
    """The commits after a given one."""

    commits: list[FeedCommit]
    next: Annotated[int, doc("To be passed as `after` of the next request.")]


class FeedProblem(Problem, kw_only=True, omit_defaults=True):
    """The problem of a request for changes that have been deleted."""

    first: Annotated[int, doc("Number of the oldest commit that is available.")]

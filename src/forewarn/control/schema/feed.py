"""Types of the history and of the feed: what a commit changed, and the state after it.

The feed is enough to mirror the fleet without further requests: it has who did what (`changes`),
and the new state of everything that the commit changed. Times are RFC 3339.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from forewarn.control.schema.core import Event, Problem
from forewarn.control.schema.types import Moment, doc


class HistoryRecord(msgspec.Struct, kw_only=True):
    """A record of the history. Fields that do not apply are empty."""

    seq: Annotated[int, doc("Number of the record.")]
    at: Annotated[Moment, doc("When it happened.")]
    what: Annotated[str, doc("Kind of the change, for example `raised`.")]
    by: Annotated[str, doc("Who did it: the name of a token, a machine, or the service.")] = ""
    group: Annotated[str, doc("Group that it concerns.")] = ""
    event: Annotated[str, doc("Id of the event.")] = ""
    type: Annotated[str, doc("Type of the event, if there is one.")] = ""
    machines: Annotated[list[str], doc("Machines that it concerns.")] = []
    host: Annotated[str, doc("Host that it concerns.")] = ""
    cause: Annotated[str, doc("Cause: the step of a rollout, or the maintenance of a host.")] = ""
    note: Annotated[str, doc("Note for people: a reason, or how something ended.")] = ""
    output: Annotated[
        str, doc("Output of the driver, if it has answered. Limited tokens do not see it.")
    ] = ""
    answer: Annotated[
        dict[str, Any],
        doc(
            "Answer of the driver for programs, for example `moved`. Limited tokens do not see it."
        ),
    ] = {}
    shown: Annotated[
        dict[str, Moment | None] | None,
        doc(
            "Of `started`: since when each machine of the event had been shown it; null: it had not"
            " been. Complete after some seconds. Null as a whole: not known, or another kind."
        ),
    ] = None


class HistoryPage(msgspec.Struct, kw_only=True):
    """A page of the history."""

    records: Annotated[list[HistoryRecord], doc("The records.")]
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
    group: Annotated[str, doc("Group that it concerns.")] = ""
    event: Annotated[str, doc("Id of the event.")] = ""
    type: Annotated[str, doc("Type of the event, if there is one.")] = ""
    machines: Annotated[list[str], doc("Machines that it concerns.")] = []
    host: Annotated[str, doc("Host that it concerns.")] = ""
    cause: Annotated[str, doc("Cause: the step of a rollout, or the maintenance of a host.")] = ""
    note: Annotated[str, doc("Note for people: a reason, or how something ended.")] = ""


class FeedMachine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A machine that changed, in its new state."""

    name: Annotated[str, doc("Name of the machine.")]
    group: Annotated[str, doc("Name of its group.")]
    update_domain: Annotated[
        int, doc("Update domain. Only one update domain of a group is affected at a time.")
    ] = 0
    fault_domain: Annotated[
        int, doc("Fault domain. Machines of one fault domain can fail together.")
    ] = 0
    addresses: Annotated[list[str], doc("Source addresses of its requests.")] = []
    host: Annotated[str, doc("Host that it is known to be on; empty: none.")] = ""
    spot: Annotated[
        bool, doc("Whether it is a spot machine, which can be evicted at any time.")
    ] = False
    labels: Annotated[dict[str, str], doc("Its own labels, without those of its group.")] = {}
    gone: Annotated[str, doc("Why the machine no longer exists; empty if it exists.")] = ""


class FeedGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A group that changed. Fields that have not changed are left out."""

    name: Annotated[str, doc("Name of the group.")]
    enabled: Annotated[
        bool | None, doc("Whether Scheduled Events are enabled: its machines poll.")
    ] = None
    kind: Annotated[str | None, doc("Kind of the group.")] = None
    labels: Annotated[dict[str, str] | None, doc("Labels to select it by.")] = None


class FeedHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host that changed, in its new state."""

    name: Annotated[str, doc("Name of the host.")]
    health: Annotated[str, doc("Health of the host.")] = "healthy"
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    since: Annotated[Moment | None, doc("When its health last changed.")] = None
    note: Annotated[str, doc("Note by the operator.")] = ""


class FeedRollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rollout that changed, in its new state."""

    id: Annotated[str, doc("Id of the rollout.")]
    type: Annotated[str, doc("Type of its events.")]
    paused: Annotated[bool, doc("Whether it is paused.")] = False
    aborted: Annotated[bool, doc("Whether it was aborted.")] = False
    ended_at: Annotated[Moment | None, doc("When it ended; null until then.")] = None


class FeedCommit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A commit: changes that became durable and visible together."""

    seq: Annotated[int, doc("Number of the commit.")]
    at: Annotated[Moment, doc("When it was committed.")]
    changes: Annotated[list[FeedChange], doc("What was done, and by whom.")]
    events: Annotated[list[Event], doc("Events that changed, in their new state.")] = []
    machines: Annotated[list[FeedMachine], doc("Machines that changed, in their new state.")] = []
    machines_removed: Annotated[list[str], doc("Names of machines that were removed.")] = []
    groups: Annotated[list[FeedGroup], doc("Groups that changed.")] = []
    hosts: Annotated[list[FeedHost], doc("Hosts that changed, in their new state.")] = []
    hosts_removed: Annotated[list[str], doc("Names of hosts that were removed.")] = []
    rollouts: Annotated[list[FeedRollout], doc("Rollouts that changed, in their new state.")] = []
    rollouts_removed: Annotated[list[str], doc("Ids of rollouts that were removed.")] = []


class FeedHello(msgspec.Struct, kw_only=True):
    """The first message of a stream."""

    after: Annotated[int, doc("Number of the commit after which the stream starts.")]
    newest: Annotated[int, doc("Number of the newest commit.")]


class FeedProgress(msgspec.Struct, kw_only=True):
    """How far the driver is with an event; not a commit, and not stored."""

    event: Annotated[str, doc("Id of the event.")]
    group: Annotated[str, doc("Its group.")]
    progress: Annotated[str, doc("What the driver says, for people.")]


class ChangesPage(msgspec.Struct, kw_only=True):
    """The commits after a given one."""

    commits: Annotated[list[FeedCommit], doc("The commits, in order.")]
    next: Annotated[int, doc("To be passed as `after` of the next request.")]


class FeedProblem(Problem, kw_only=True, omit_defaults=True):
    """The problem of a request for changes that have been deleted."""

    first: Annotated[int, doc("Number of the oldest commit that is available.")]

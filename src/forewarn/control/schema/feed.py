"""Types of the history, and of the feed: what one commit changed, and the state after it.

A feed is enough to follow the fleet without asking again: who did what (`changes`), and everything
that the commit touched as it is now. Times are RFC 3339.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema.core import Event, Problem
from forewarn.control.schema.types import Moment, doc


class HistoryRecord(msgspec.Struct, kw_only=True):
    """One thing that happened; what does not apply is left empty."""

    seq: Annotated[int, doc("Number of the record.")]
    at: Moment
    what: str
    by: Annotated[str, doc("Who did it.")] = ""
    group: str = ""
    event: str = ""
    type: Annotated[str, doc("Type of the event, if it is about one.")] = ""
    machines: list[str] = []
    host: Annotated[str, doc("Host it is on, or about.")] = ""
    cause: Annotated[str, doc("What caused it: a rollout's step, or maintenance of a host.")] = ""
    note: Annotated[str, doc("Free text by whoever did it.")] = ""


class HistoryPage(msgspec.Struct, kw_only=True):
    records: list[HistoryRecord]
    next: Annotated[
        str,
        doc(
            "Pass it as `before` for the next page (as `after` with oldest_first, as `after_seq`"
            " where that was given); empty: there is none."
        ),
    ] = ""


class FeedChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened, in the words of the history; what does not apply is left out."""

    what: str
    by: Annotated[str, doc("Who did it.")] = ""
    group: str = ""
    event: str = ""
    type: Annotated[str, doc("Type of the event, if it is about one.")] = ""
    machines: list[str] = []
    host: Annotated[str, doc("Host it is on, or about.")] = ""
    cause: Annotated[str, doc("What caused it: a rollout's step, or maintenance of a host.")] = ""
    note: Annotated[str, doc("Free text by whoever did it.")] = ""


class FeedMachine(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    group: str
    update_domain: Annotated[int, doc("Of a group, one update domain is disturbed at a time.")] = 0
    fault_domain: Annotated[int, doc("Machines of one fault domain can fail together.")] = 0
    addresses: Annotated[list[str], doc("Addresses that its requests come from.")] = []
    host: Annotated[str, doc("Host it is on, or about.")] = ""
    spot: Annotated[
        bool, doc("Whether it is a spot machine, which can be evicted at any time.")
    ] = False
    labels: Annotated[dict[str, str], doc("Its own; those of its group stand there.")] = {}
    gone: Annotated[str, doc("Why the machine no longer exists; empty while it does.")] = ""


class FeedGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is left out has not changed."""

    name: str
    enabled: Annotated[bool | None, doc("Whether its machines poll for events.")] = None
    kind: Annotated[str | None, doc("Its kind.")] = None
    labels: Annotated[dict[str, str] | None, doc("Labels to select it by.")] = None


class FeedHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    health: Annotated[str, doc("Health of the host.")] = "healthy"
    labels: Annotated[dict[str, str], doc("Labels to select it by.")] = {}
    since: Annotated[Moment | None, doc("Since when.")] = None
    note: Annotated[str, doc("Free text by whoever did it.")] = ""


class FeedRollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    type: Annotated[str, doc("Type of the event.")]
    paused: bool = False
    aborted: bool = False
    ended_at: Annotated[Moment | None, doc("When it ended; null while it has not.")] = None


class FeedCommit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became durable, and visible, at once."""

    seq: Annotated[int, doc("Number of the commit.")]
    at: Moment
    changes: list[FeedChange]
    events: Annotated[list[Event], doc("Events that changed, as they are now.")] = []
    machines: list[FeedMachine] = []
    machines_removed: list[str] = []
    groups: list[FeedGroup] = []
    hosts: list[FeedHost] = []
    hosts_removed: list[str] = []
    rollouts: list[FeedRollout] = []
    rollouts_removed: list[str] = []


class FeedHello(msgspec.Struct, kw_only=True):
    """Where a stream begins: after which commit, and which is the newest."""

    after: int
    newest: int


class ChangesPage(msgspec.Struct, kw_only=True):
    commits: list[FeedCommit]
    next: Annotated[int, doc("Pass it as `after` to go on.")]


class FeedProblem(Problem, kw_only=True, omit_defaults=True):
    """For whoever asks for what is no longer there."""

    first: Annotated[int, doc("The oldest commit that is kept.")]

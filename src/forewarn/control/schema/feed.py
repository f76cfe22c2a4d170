"""The shapes of the feed: what one commit changed, and how things stand after it.

Enough to follow the fleet without asking again: who did what (`changes`), and everything that the
commit touched as it is now. Times are RFC 3339.
"""

from __future__ import annotations

import msgspec

from forewarn.control.schema.core import Event, Problem
from forewarn.control.schema.types import Moment


class FeedChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened, in the words of the history; what does not apply is left out."""

    what: str
    by: str = ""
    group: str = ""
    event: str = ""
    type: str = ""
    machines: list[str] = []
    host: str = ""
    cause: str = ""
    note: str = ""


class FeedMachine(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    group: str
    update_domain: int = 0
    fault_domain: int = 0
    addresses: list[str] = []
    host: str = ""
    spot: bool = False
    labels: dict[str, str] = {}  # its own; those of its group stand there
    gone: str = ""


class FeedGroup(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is left out has not changed."""

    name: str
    enabled: bool | None = None
    kind: str | None = None
    labels: dict[str, str] | None = None


class FeedHost(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    health: str = "healthy"
    labels: dict[str, str] = {}
    since: Moment | None = None
    note: str = ""


class FeedRollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    type: str
    paused: bool = False
    aborted: bool = False
    ended_at: Moment | None = None


class FeedCommit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became durable, and visible, at once."""

    seq: int
    at: Moment
    changes: list[FeedChange]
    events: list[Event] = []
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
    next: int  # say it as `after` to go on


class FeedProblem(Problem, kw_only=True, omit_defaults=True):
    """For whoever asks for what is no longer there."""

    first: int  # the oldest commit that is kept

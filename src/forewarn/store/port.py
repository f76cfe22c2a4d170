"""The port: what every engine offers.

`transact` is the one way to change state. Its `work` is a pure function of the states it is
given and may be run again; one commit may span several groups. When `transact` returns, the
commit is durable, swapped in, and every listener has been told, in that order.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import IO, Protocol, TypeAlias

import msgspec

from forewarn.core import Change, Duration, Event, Group, Time
from forewarn.core.history import Record, What, Word
from forewarn.core.registry import Put, Registry


class Entry(msgspec.Struct, frozen=True):
    """What one commit changes in one group."""

    group: str
    items: tuple[Change, ...]


class Key(msgspec.Struct, frozen=True):
    """What a caller calls its request, so that the same one again does nothing more."""

    owner: str  # whose name for it this is
    name: str
    asked: str  # a digest of what was asked for


class Keyed(msgspec.Struct, frozen=True):
    """A request with a key that has been carried out."""

    key: Key
    seq: int  # the commit that did it
    at: Time
    status: int | None = None  # what was answered, as soon as that is known
    answer: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """What a work wants committed; without entries it only wants to know that what it has
    seen is durable."""

    at: Time
    lost: Duration = 0  # how much time nobody had served until then
    entries: tuple[Entry, ...] = ()
    puts: tuple[Put, ...] = ()  # what changes beside the groups
    after: Mapping[str, Group] = {}  # what the entries lead to, as far as it is known already
    key: Key | None = None  # of the request that wants it
    notes: tuple[str, ...] = ()  # what that is to be told
    about: tuple[str, ...] = ()  # the events that it is about


class Commit(msgspec.Struct, frozen=True):
    seq: int
    at: Time
    lost: Duration
    entries: tuple[Entry, ...]
    puts: tuple[Put, ...] = ()
    key: Key | None = None
    notes: tuple[str, ...] = ()  # with a key: what the caller is to be told
    about: tuple[str, ...] = ()  # and of which events
    words: tuple[Word, ...] = ()  # as kept: what only the states before it would tell, for readers


class PollSightings(msgspec.Struct, frozen=True, kw_only=True):
    """The lossy side: written now and then, never waited for."""

    seen: dict[str, int]  # by group, in time served
    served_until: Time | None = None
    lost: Duration = 0
    firsts: tuple[Record, ...] = ()  # who was shown an event first, in order of time; not read back
    used: dict[str, Time] = {}  # by token, when it was last used
    copied: Time | None = None  # the state is a copy, made then, and nobody has served it since
    restored: Time | None = None  # when a copy last became the state; these two are only read


Mark: TypeAlias = tuple[Time, int]  # a record's time and number: where a page ended


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of the history: all that is said must hold."""

    machine: str | None = None  # that it is about, be it through an event
    group: str | None = None
    groups: tuple[str, ...] | None = None  # one of these; what is about no group is not meant
    host: str | None = None
    event: str | None = None
    since: Time | None = None
    until: Time | None = None  # and not later, nor then
    what: tuple[What, ...] = ()  # one of these; empty: anything
    after: Mark | None = None
    before: Mark | None = None
    after_seq: int | None = None  # those with a higher number, in the order of their numbers
    newest_first: bool = False
    limit: int = 100


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a state file."""

    schema: str
    commit: int  # the number of the last one
    at: Time | None  # until when it goes: its last commit, or until when its service served
    copied_at: Time | None  # when the copy was made, if it is one
    groups: int
    machines: int
    active_events: int
    tokens: int


class Copy(msgspec.Struct, frozen=True):
    """A copy of the state: a file that is gone when it is closed."""

    file: IO[bytes]
    size: int
    contents: Contents


class StoreFailed(Exception):
    """A commit could not be made durable. Nothing of it has happened."""


class OutcomeUnknown(Exception):
    """A commit may or may not have happened, which only the next start can tell. Its callers must
    not be told either, and the service has to stop (`store/sqlite/durability.py`)."""


class StoreUnreadable(StoreFailed):
    """What is not in memory could not be read."""


class StoreUnusable(Exception):
    """The store cannot be opened; the message is one line for whoever started the service."""


class States(ChainMap[str, Group]):
    """The groups by name; a group nobody has defined is an empty one. Beside them the rest."""

    def __init__(self, *maps: MutableMapping[str, Group], registry: Registry) -> None:
        super().__init__(*maps)
        self.registry = registry

    def __missing__(self, name: str) -> Group:
        return Group(name=name)


Work: TypeAlias = Callable[[States], Batch]
Listener: TypeAlias = Callable[[Commit, Mapping[str, Group]], None]
Measured: TypeAlias = Callable[[float, int, int, str], None]
Stopping: TypeAlias = Callable[[OutcomeUnknown], None]
Usher: TypeAlias = Callable[[Sequence[Commit], Mapping[str, Group]], Awaitable[None]]


class Store(Protocol):
    @property
    def groups(self) -> Mapping[str, Group]:
        """The state as last committed."""
        ...

    @property
    def registry(self) -> Registry:
        """What stands beside the groups, as last committed. Only for looking at."""
        ...

    @property
    def seq(self) -> int:
        """The number of the last commit; 0 if there is none."""
        ...

    def healthy(self) -> str:
        """Why the last write failed; empty if it did not."""
        ...

    def skip(self, numbers: int) -> None:
        """Let the number of the next commit be so much higher."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def attach(self, listener: Listener) -> None:
        """Call `listener` with every commit, in order, before its callers hear of it."""
        ...

    def measure(self, measured: Measured) -> None:
        """Call it with every batch: how many seconds it took, how many works and commits there
        were, and why it failed, if it did."""
        ...

    def on_unknown_outcome(self, stop: Stopping) -> None:
        """Register `stop`, to be called when the outcome of a commit is unknown, before any caller
        is answered. If it returns, the callers get OutcomeUnknown, and no more commits are made."""
        ...

    async def check(self) -> None:
        """Check that the files are still those that were opened, and save what can be saved if they
        are not. Raises StoreFailed if commits cannot be made durable."""
        ...

    def precede(self, usher: Usher) -> None:
        """Await `usher` with commits that are durable, and what they lead to, before these are
        the state and any listener is told: so that others at a distance can be prepared."""
        ...

    async def transact(self, work: Work) -> Commit | None: ...

    def commits(self, after: int) -> AsyncIterator[Commit]:
        """In commit order, without a gap, from the oldest that is kept after `after` up to the
        last commit there is."""
        ...

    async def keyed(self, owner: str, name: str) -> Keyed | None:
        """What has been carried out under this key, unless it is forgotten already."""
        ...

    async def answered(self, key: Key, status: int, answer: bytes) -> None:
        """Keep, durably, what was answered to a request that has been carried out."""
        ...

    async def records(self, ids: Collection[str]) -> Mapping[str, Event]:
        """Events that are over, by id."""
        ...

    async def past(
        self, *, group: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Event]:
        """Events that are over, the latest raised first; only those raised before one of which the
        id is given, and none if that is not known any more."""
        ...

    async def caused_by(self, cause: str) -> Sequence[Event]:
        """Every event with this cause, in the order of raising, those that are over included."""
        ...

    async def caused_under(self, prefix: str) -> Sequence[Event]:
        """Every event whose cause begins so, in the order of raising, over or not."""
        ...

    async def ids(self, prefix: str, limit: int) -> Sequence[str]:
        """Of events whose id begins so, over or not."""
        ...

    async def history(self, wanted: HistoryQuery) -> Sequence[Record]:
        """At most `limit` records, in order of their time and then of their number; or, after a
        number, in order of that: whoever goes on from the last misses none."""
        ...

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        """Forget what was over before the cutoff, but for events that `keeps` wants kept. What is
        active, and the newest commit, always stay; keys stay as long as their commits. How many
        records are gone?"""
        ...

    async def save(self, sightings: PollSightings) -> None:
        """Of those who were shown an event first, only the first ever is written down."""
        ...

    async def sightings(self) -> PollSightings: ...

    async def copy(self, at: Time) -> Copy | None:
        """All of it as it is at one moment, without keeping commits waiting; None if nothing of
        it is on disk."""
        ...

"""The port: what every store engine offers.

`transact` is the only way to change state. Its `work` is a pure function of the states that it is
given, and may be called more than once; one commit may span several groups. When `transact`
returns, the commit is durable, it is the state, and every listener was called, in that order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, TypeAlias
from uuid import uuid4

import msgspec

from forewarn.core import Change, Duration, Event, Group, Time
from forewarn.core.access import Token
from forewarn.core.history import Record, RecordKind, ReplayNote
from forewarn.core.registry import Put, Registry
from forewarn.core.windows.model import Window


class Entry(msgspec.Struct, frozen=True):
    """What one commit changes in one group."""

    group: str
    items: tuple[Change, ...]


class Key(msgspec.Struct, frozen=True):
    """An idempotency key: a repeated request with the same key has no further effect."""

    owner: str  # the caller that chose the name
    name: str
    digest: str  # of the request


class KeyedRequest(msgspec.Struct, frozen=True):
    """A request with an idempotency key, which was carried out."""

    key: Key
    seq: int  # the commit that carried it out
    at: Time
    status: int | None = None  # of the response, once that is known
    answer: bytes = b""


class Batch(msgspec.Struct, frozen=True):
    """What a work commits. An empty batch commits nothing, but the caller still waits until the
    states that the work has seen are durable."""

    at: Time
    lost: Duration = 0  # how long the endpoint has not been serving, in all
    entries: tuple[Entry, ...] = ()
    puts: tuple[Put, ...] = ()  # changes of the registry
    after: Mapping[str, Group] = {}  # groups after the entries, if they are known already
    key: Key | None = None  # of the request
    notes: tuple[str, ...] = ()  # for the caller of the request
    about: tuple[str, ...] = ()  # ids of the events that the request is about


class Commit(msgspec.Struct, frozen=True):
    seq: int
    at: Time
    lost: Duration
    entries: tuple[Entry, ...]
    puts: tuple[Put, ...] = ()
    key: Key | None = None
    notes: tuple[str, ...] = ()  # with a key: as in `Batch`
    about: tuple[str, ...] = ()  # likewise
    # Set by the store: what the history says beyond the changes.
    replay_notes: tuple[ReplayNote, ...] = ()


class MachineSighting(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the client on a machine."""

    polled: Time  # last
    version: str  # api-version of that poll
    polls: int
    ignored: int = 0  # events of its own that it was shown, and that started unapproved
    answered: Time | None = None  # when it last approved an event or reported that it is ready


class PollSightings(msgspec.Struct, frozen=True, kw_only=True):
    """When groups, machines and tokens were last seen. Saved now and then; what is newer may be
    lost. Machines that are gone are forgotten by the commit that removes them."""

    seen: dict[str, int]  # by group, in time served
    machines: dict[str, MachineSighting] = {}
    served_until: Time | None = None  # if there is none, what is stored of it and `lost` stays
    lost: Duration = 0
    steady_since: Time = 0  # the end of the last interruption by then; stored with `served_until`
    # Which machine saw an event first, and which of its own have; by time, written only:
    firsts: tuple[Record, ...] = ()
    shown: dict[str, dict[str, Time]] = {}  # read only: the latter, by active event
    used: dict[str, Time] = {}  # by token: when it was last used
    copied: Time | None = None  # read only: the state is a copy, made then and not served since
    # The highest commit that was known, if the state is a copy, or has lost commits:
    known: int = 0
    restored: Time | None = None  # read only: when a copy last became the state


class NotifyPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far the notifications of a table [[notify]] have been delivered."""

    name: str
    origin: str  # random: the beginning of the ids of its messages
    after: int  # everything up to this commit is delivered
    part: int = 0  # and so many notifications of the next one
    sending: int | None = None  # the last commit of the combined message that is being sent
    delivered_at: Time | None = None  # when a message was last delivered
    skipped: int = 0  # notifications that were not sent, which has not been reported yet
    skipped_since: Time | None = None
    skipped_until: Time | None = None
    lost: bool = False  # some of them are no longer stored
    # What the API was asked for: its `table` is followed; None: the table is in the settings.
    asked: dict[str, Any] | None = None


Mark: TypeAlias = tuple[Time, int]  # time and number of the record that a page ended with


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects records of the history: those that match every given field."""

    machine: str | None = None  # which the record, or its event, is about
    group: str | None = None
    groups: tuple[str, ...] | None = None  # any of these; records about no group do not match
    host: str | None = None
    event: str | None = None
    since: Time | None = None
    until: Time | None = None  # exclusive
    what: tuple[RecordKind, ...] = ()  # any of these; empty: all
    after: Mark | None = None
    before: Mark | None = None
    after_seq: int | None = None  # with a higher number, in the order of numbers
    newest_first: bool = False
    limit: int = 100


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of a state file."""

    schema: str
    commit: int  # number of the last commit
    at: Time | None  # of the last commit, or the end of the time served, if that is later
    copied_at: Time | None  # when it was copied, if it is a copy
    groups: int
    machines: int
    active_events: int
    tokens: int


class Copy(msgspec.Struct, frozen=True):
    """A copy of the state, in a file that is deleted when it is closed."""

    file: IO[bytes]
    size: int
    contents: Contents


class RestoreResult(msgspec.Struct, frozen=True):
    contents: Contents
    kept: Path | None  # where the state that was replaced is now
    outdated: bool  # it has to be upgraded before it is served


class UpgradeResult(msgspec.Struct, frozen=True):
    before: str  # the schema before the upgrade
    after: str
    kept: Path | None  # a copy of the state as it was; None: there was nothing to do


class StoreFailed(Exception):
    """A commit could not be made durable. It did not happen."""


class OutcomeUnknown(Exception):
    """A commit may or may not have happened, which only the next start can tell. Its callers must
    get no answer, and the service has to stop (`store/sqlite/durability.py`)."""


class Deposed(OutcomeUnknown):
    """Another process decides now, or may do so at any moment: this one has to stop."""


class CannotFollow(OutcomeUnknown):
    """What another process has committed cannot be taken over: this one has to stop."""


class NotLeading(StoreFailed):
    """Another process decides. Nothing was changed."""

    def __init__(self, leader: Leader | None) -> None:
        self.leader = leader
        if leader is None:
            who = "none decides at the moment; try again"
        else:
            who = f"control node '{leader.name}' decides, at {leader.address}"
        super().__init__(f"this control node follows: {who}")


class StoreUnreadable(StoreFailed):
    """Stored data could not be read."""


class StoreUnusable(Exception):
    """The store cannot be opened. The message is one line for the operator."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One of the processes that may open the same state: a control node."""

    name: str
    # Id of the machine it runs on, and of its boot: the same name on another one, or before it was
    # last started, is somebody else.
    machine: str
    address: str  # URL of its control API
    process: str = msgspec.field(default_factory=lambda: uuid4().hex[:12])  # another at each start

    @property
    def place(self) -> str:
        """The machine and the process."""
        return f"{self.machine}/{self.process}"


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The control node that decides, as the state says."""

    term: int  # grows with every change of the leader
    name: str
    address: str  # of its control API
    held: bool  # its lease had not run out when this was read


class ControlNode(msgspec.Struct, frozen=True, kw_only=True):
    """A control node, as it has last reported."""

    name: str
    address: str  # of its control API
    version: str
    lease: float = 0.0  # seconds, as set there; 0: it needs none
    commit: int  # the last one that it knew
    lag: int = 0  # commits that it did not know yet
    started: Time
    seen: Time  # when it has reported this
    leads: bool
    away: bool = False  # it has not reported for a while
    process: str = ""  # another at each start


CLOCK_LIMIT = 2.0  # seconds by which the clock of whoever decides may differ from the state's
WARNINGS = ("replication", "version", "lease", "name")  # what warnings of a leadership are about


class Leadership(ABC):
    """Which of the processes that have opened the same state decides."""

    # Returns whether this process decides, by its own clock. Cheap, for use on every poll.
    held: Callable[[], bool]

    @abstractmethod
    def follow(self) -> None:
        """Take over the commits of whoever decides from now on, and call the listeners."""

    @abstractmethod
    async def take(self) -> None:
        """Follow, and wait until this process decides. Then the state is what was last committed,
        and the clock of this process has been compared with that of the state: one that is wrong
        does not decide."""

    @abstractmethod
    async def take_at_once(self) -> None:
        """As `take`, but raises NotLeading if another process decides, and StoreFailed if this one
        cannot, for whatever reason. While that is uncertain, it waits: no longer than a lease."""

    @property
    @abstractmethod
    def until(self) -> float:
        """When `held` becomes false, in boot time, unless the lease is renewed."""

    @abstractmethod
    def watch(self, listener: Callable[[float], None]) -> None:
        """Call a function with `until` now, and in any thread whenever it changes."""

    @abstractmethod
    def give_up(self, why: str) -> None:
        """Have this process stop, because it decides and cannot."""

    @property
    @abstractmethod
    def term(self) -> int:
        """The term in which this process decides; 0 if it does not."""

    @abstractmethod
    def leader(self) -> Leader | None:
        """Return who decides, as far as is known."""

    @abstractmethod
    def problem(self) -> str:
        """Return why this process could not take over; empty if it could."""

    def warnings(self) -> Mapping[str, str]:
        """Return what an operator should know although this process could take over, by subject
        (one of WARNINGS); empty texts stand for nothing."""
        return {}

    @abstractmethod
    def lag(self) -> tuple[int, float]:
        """Return by how many commits this process is behind, as of a few seconds ago, and how many
        seconds ago it knew all of them. A process that decides is never behind."""

    @abstractmethod
    async def nodes(self) -> Sequence[ControlNode]:
        """Return the processes that have the state open, or had it open lately."""

    @abstractmethod
    async def forget(self, name: str) -> None:
        """Have `nodes` no longer return those of this name that are away."""


class States(ChainMap[str, Group]):
    """The groups by name, where a group that is not defined is an empty one, and the registry."""

    def __init__(self, *maps: MutableMapping[str, Group], registry: Registry) -> None:
        super().__init__(*maps)
        self.registry = registry

    def __missing__(self, name: str) -> Group:
        return Group(name=name)


Work: TypeAlias = Callable[[States], Batch]
Listener: TypeAlias = Callable[[Commit, Mapping[str, Group]], None]
BatchListener: TypeAlias = Callable[[float, int, int, str], None]
OutcomeUnknownListener: TypeAlias = Callable[[OutcomeUnknown], None]


class Store(ABC):
    leadership: Leadership | None = None  # None: only one process can open the state

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, Group]:
        """The groups as last committed, by name."""

    @property
    @abstractmethod
    def registry(self) -> Registry:
        """What is stored besides the groups, as last committed. Read only."""

    @property
    @abstractmethod
    def seq(self) -> int:
        """The number of the last commit; 0 if there is none."""

    @abstractmethod
    def problem(self) -> str:
        """Return why the last write failed; empty if it did not fail."""

    @abstractmethod
    def waited(self) -> float:
        """Return for how many seconds the batch that is being written has been waiting to become
        durable, beyond what its size explains; 0 if there is none."""

    @abstractmethod
    def busy(self) -> bool:
        """Return whether a batch is being written that is so large that this takes long."""

    @abstractmethod
    def size(self) -> int:
        """Return how many bytes the state takes on disk; 0 if it is not on disk."""

    @abstractmethod
    def skip_numbers(self, count: int) -> None:
        """Leave out `count` numbers before the next commit."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    def on_commit(self, listener: Listener) -> None:
        """Call `listener` with every commit, in order, before the callers of `transact` go on. If
        several processes have the state open, also with those that another one makes."""

    @abstractmethod
    def on_own_commit(self, listener: Listener) -> None:
        """Call `listener`, likewise, with the commits that this process makes."""

    @abstractmethod
    def on_batch(self, listener: BatchListener) -> None:
        """Call `listener` for every batch: how many seconds it took, how many works and commits
        it contained, and why it failed, if it did. There is one such listener."""

    @abstractmethod
    def on_unknown_outcome(self, listener: OutcomeUnknownListener) -> None:
        """Call `listener` when the outcome of a commit is unknown, before any caller gets a result.
        If it returns, the callers get OutcomeUnknown, and no more commits are made."""

    @abstractmethod
    async def check(self) -> None:
        """Check that the files are still those that were opened, and save what can be saved if they
        are not. Raises StoreFailed if commits cannot be made durable."""

    @abstractmethod
    async def transact(self, work: Work) -> Commit | None:
        """Commit what `work` returns. Returns None if there was nothing to commit."""

    @abstractmethod
    def commits(self, after: int) -> AsyncIterator[Commit]:
        """Iterate over the commits after number `after`, in order and without a gap, from the
        oldest that is still stored to the last one."""

    @abstractmethod
    async def keyed_request(self, owner: str, name: str) -> KeyedRequest | None:
        """Return the request that was carried out under this key, unless it was pruned."""

    @abstractmethod
    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        """Store the response to a request that was carried out."""

    @abstractmethod
    async def ended_events(self, ids: Collection[str]) -> Mapping[str, Event]:
        """Return those of the events that are over, by id; others are left out."""

    @abstractmethod
    async def past_events(
        self, *, group: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Event]:
        """Return events that are over, the latest raised first. With `before`, an event's id: only
        those raised before it, and none if it has been pruned."""

    @abstractmethod
    async def events_by_cause(self, prefix: str) -> Sequence[Event]:
        """Return every event whose cause starts with `prefix`, in the order of raising, over or
        not."""

    @abstractmethod
    async def event_ids(self, prefix: str, limit: int) -> Sequence[str]:
        """Return the first `limit` ids that start with `prefix`, of events that are over or not,
        in the order of their characters."""

    @abstractmethod
    async def history(self, query: HistoryQuery) -> Sequence[Record]:
        """Return at most `limit` records, ordered by time and then by number; or, with
        `after_seq`, by number, so that a reader that continues from the last one misses none."""

    @abstractmethod
    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        """Remove what was over before the cutoff, except for events for which `keeps` is true.
        Active events and the newest commit always stay; keys stay as long as their commits.
        Returns how many records of the history were removed."""

    @abstractmethod
    async def save(self, sightings: PollSightings) -> None:
        """Store the sightings. For each event, the first record ever of which machine saw it first
        is kept; of those that follow, only `shown`."""

    @abstractmethod
    async def sightings(self) -> PollSightings: ...

    @abstractmethod
    async def notify_positions(self) -> Mapping[str, NotifyPosition]:
        """Return the stored positions by name."""

    @abstractmethod
    async def save_notify_position(self, position: NotifyPosition) -> None: ...

    @abstractmethod
    async def delete_notify_position(self, name: str) -> None: ...

    @abstractmethod
    async def copy(self, at: Time) -> Copy | None:
        """Return a copy of the whole state at one moment, without delaying commits; None if the
        state is not on disk."""


class StoredState(ABC):
    """A state that this process does not serve; another process may. Every method except `problem`
    raises StoreUnusable."""

    @abstractmethod
    def problem(self) -> str:
        """Return why a service that starts could not use the state; empty if it could. Changes
        nothing."""

    def warnings(self, *, managed: bool) -> list[str]:  # noqa: ARG002
        """Return what an operator should know about a state that can be used. If its replication
        is `managed` by somebody else, it is believed to lose nothing."""
        return []

    @abstractmethod
    def in_use(self) -> bool:
        """Return whether a process has the state open."""

    @abstractmethod
    def tokens(self) -> list[tuple[Token, Time | None]]:
        """Return the tokens, the newest last, and when each was last used."""

    @abstractmethod
    def windows(self) -> list[tuple[str, Window]]:
        """Return the windows that may still apply, each with the name of what it belongs to."""

    @abstractmethod
    def copy(self, target: Path, at: Time) -> Contents:
        """Write a copy to a new file, and check it. Works while the state is in use."""

    @abstractmethod
    def restore(self, backup: Path, at: Time, *, force: bool) -> RestoreResult:
        """Replace the state by a copy that was made of it. With `force`, also if there is a state
        already; that one is kept. Raises OutcomeUnknown if it may be lost in a crash."""

    @abstractmethod
    def upgrade(self) -> UpgradeResult:
        """Bring the state to the schema of this version."""

    @abstractmethod
    def keep_owner(self) -> AbstractContextManager[None]:
        """Give files that root creates within the block to the owner of the state."""

"""One state in memory that several stores open, of which one decides: the lease of the PostgreSQL
engine, without a database, for tests and simulations of several control nodes.

The rules are the same: a claim begins a new term, everything that is written checks its term first,
a node counts its lease from before the claim, and whoever claims has seen the row unchanged for the
length of the lease, or it was given back, and has a clock that is right. Time is whatever clocks
the disk has: one that all nodes share, and the wall clock of a database, which may step.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from forewarn import __version__
from forewarn.core import Event, Group, Time
from forewarn.store import MemoryStore
from forewarn.store.lease_watch import LeaseWatch
from forewarn.store.memory import Disk
from forewarn.store.port import (
    CLOCK_LIMIT,
    Commit,
    ControlNode,
    Deposed,
    Key,
    Leader,
    Leadership,
    Member,
    NotifyPosition,
    NotLeading,
    PollSightings,
    StoreFailed,
    Work,
)
from forewarn.support import guard

_RUN_OUT = "the lease of this control node has run out, and could not be renewed"
RENEWALS = 4  # in the length of a lease
SHORTEST_WAIT = 0.01  # seconds between two looks at a lease that has run out
ENDED = float("-inf")  # the end of a lease that nobody has


class LeaseRow:
    """Who decides, as everybody can read. Outlives the stores."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = guard.boottime
        self.wall: Callable[[], float] = lambda: self.clock()  # decides nothing
        self.term = 0
        self.member: Member | None = None
        self.until = ENDED  # by the wall clock
        self.length = 0.0  # seconds, as whoever has claimed it has set them
        self.listeners: list[Callable[[], None]] = []
        self.followers: list[MemoryLeadership] = []  # of stores that are open

    def announce(self) -> None:
        """Wake everybody, because something was committed or the lease has changed."""
        for wake in list(self.listeners):
            wake()


class MemoryLeadership(Leadership):
    def __init__(
        self,
        store: SharedMemoryStore,
        member: Member,
        length: float,
    ) -> None:
        self._store = store
        self._row = store.disk.lease
        self.member = member
        self._length = length  # seconds
        self._term = 0
        self._until = ENDED
        self._wanted = False
        self._taken = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks = guard.Tasks()
        self._following = False
        self._watch = LeaseWatch(lambda: self._row.clock())
        self._started = guard.wall_us()
        self.ended = ""  # why this store cannot write any more
        self.clock_error: Callable[[], float] = lambda: 0.0  # of this process, in seconds

    def follow(self) -> None:
        if not self._following:
            self._following = True
            self._row.listeners.append(self.wake)
            self._row.followers.append(self)
            self._tasks.start(self._run(), "lease")

    def wake(self) -> None:
        self._news.set()

    async def take(self) -> None:
        self._wanted = True
        self.follow()
        self.wake()
        await self._taken.wait()

    async def take_at_once(self) -> None:
        self.follow()
        row = self._row
        seen = row.term, row.until
        while not self._claim():
            if (row.term, row.until) != seen:
                raise NotLeading(self.leader())
            await guard.pause(SHORTEST_WAIT)

    def held(self) -> bool:
        return self._row.clock() < self._until

    @property
    def until(self) -> float:
        return self._until

    def watch(self, listener: Callable[[float], None]) -> None:
        listener(math.inf)  # what would need it are programs, and a simulation starts none

    @property
    def term(self) -> int:
        return self._term

    def leader(self) -> Leader | None:
        row = self._row
        if row.member is None:
            return None
        held = row.until >= row.wall()
        return Leader(term=row.term, name=row.member.name, address=row.member.address, held=held)

    def problem(self) -> str:
        return ""

    def lag(self) -> tuple[int, float]:
        return len(self._store.commits_since(self._store.seq)), 0.0

    async def nodes(self) -> Sequence[ControlNode]:
        followers = sorted(self._row.followers, key=lambda follower: _identity(follower.member))
        return [
            ControlNode(
                name=follower.member.name,
                address=follower.member.address,
                version=__version__,
                lease=follower._length,
                commit=follower._store.seq,
                lag=follower.lag()[0],
                started=follower._started,
                seen=guard.wall_us(),
                leads=follower.held(),
            )
            for follower in followers
        ]

    async def forget(self, name: str) -> None:
        pass  # a process that is gone is not listed

    def give_up(self, why: str) -> None:
        self.depose(Deposed(why))

    def check_leading(self) -> None:
        """Raises NotLeading."""
        if not self._taken.is_set():
            leader = self.leader()
            raise NotLeading(leader if leader and leader.held else None)

    def check_term(self) -> None:
        """The fence: what is written right after this is written in this term. Raises Deposed."""
        if self._row.term != self._term:
            self.depose(Deposed("another control node has taken over"))
        if self.ended:
            raise Deposed(self.ended)

    def claim_again(self) -> None:
        """Begin another term in place of one's own. Raises Deposed."""
        self.check_term()
        self._begin_term()

    def depose(self, why: Deposed) -> None:
        if not self.ended:
            self.ended = str(why)
            self._until = ENDED
            self._store._on_unknown_outcome(why)

    async def stop(self) -> None:
        """Give the lease back, if there is one, and end following."""
        row = self._row
        if self._following:
            row.listeners.remove(self.wake)
            row.followers.remove(self)
            self._following = False
        await self._tasks.end()
        if self._term and row.term == self._term:
            row.until = ENDED
            row.announce()
        self._term, self._until = 0, ENDED
        self._taken.clear()

    async def _run(self) -> None:
        while not self.ended:
            self._news.clear()
            if self._term:
                self._renew()
            else:
                self._adopt_news()
                if self._wanted:
                    self._claim()
            left = self._length / RENEWALS
            if not self._term:
                left = max(SHORTEST_WAIT, min(left, self._left()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    def _adopt_news(self) -> None:
        self._store._adopt(self._store.commits_since(self._store.seq))

    def _clock_is_wrong(self) -> bool:
        return abs(self.clock_error()) > CLOCK_LIMIT

    def _claim(self) -> bool:
        if self._left() or self._clock_is_wrong():
            return False
        self._begin_term()
        self._adopt_news()  # what is read after a claim is the log
        self._taken.set()
        return True

    def _left(self) -> float:
        """Return in how many seconds the lease may be claimed, if nobody renews it until then."""
        row = self._row
        left = self._watch.left((row.term, row.until), row.length)
        mine = row.member is not None and _identity(row.member) == _identity(self.member)
        alive = any(other._term == row.term for other in row.followers)  # not killed: a twin
        return 0.0 if row.until == ENDED or (mine and not alive) else left

    def _begin_term(self) -> None:
        row = self._row
        row.term += 1
        row.member, row.length = self.member, self._length
        self._term, self._until = row.term, row.clock() + self._length
        row.until = row.wall() + self._length
        row.announce()

    def _renew(self) -> None:
        row = self._row
        if row.term != self._term:
            self.depose(Deposed("another control node has taken over"))
        elif not self.held():
            self.depose(Deposed(_RUN_OUT))
        else:
            self._until = row.clock() + self._length
            row.until = row.wall() + self._length


def _identity(member: Member) -> tuple[str, str]:
    return member.name, member.machine


class SharedDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.lease = LeaseRow()


class SharedMemoryStore(MemoryStore):
    """What it writes belongs to the term of its lease."""

    disk: SharedDisk
    leadership: MemoryLeadership

    def __init__(self, disk: SharedDisk, member: Member, *, lease: float = 6.0) -> None:
        super().__init__(disk)
        self.leadership = MemoryLeadership(self, member, lease)

    async def close(self) -> None:
        await super().close()
        await self.leadership.stop()

    def problem(self) -> str:
        return self.leadership.ended or super().problem()

    def commits_since(self, seq: int) -> Sequence[Commit]:
        commits = self.disk.commits
        return commits[bisect_right(commits, seq, key=lambda commit: commit.seq) :]

    async def transact(self, work: Work) -> Commit | None:
        self.leadership.check_leading()
        if self.leadership.ended:
            raise StoreFailed(self.leadership.ended)
        return await super().transact(work)

    # What is written right after the check, without a pause in between, belongs to the term.

    def _check_term(self) -> None:
        self.leadership.check_term()

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        self._check_term()
        await super()._persist(commits, before, after)
        self.disk.lease.announce()

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        self._check_term()
        await super().save_answer(key, status, answer)

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        self._check_term()
        return await super().prune(cutoff, keeps)

    async def save(self, sightings: PollSightings) -> None:
        self._check_term()
        await super().save(sightings)

    async def save_notify_position(self, position: NotifyPosition) -> None:
        self._check_term()
        await super().save_notify_position(position)

    async def delete_notify_position(self, name: str) -> None:
        self._check_term()
        await super().delete_notify_position(name)

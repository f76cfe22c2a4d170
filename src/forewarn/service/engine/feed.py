"""The feed of commits, in order: for waiters of one group, and for followers of all commits.

A follower holds nothing but the number of the last commit it was given, and reads later ones from
the store at its own pace. What was read last is cached, so that many followers who keep up cost one
read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

import msgspec

from forewarn.core import Group
from forewarn.store.port import Commit, Store

FEED_PAGE = 64  # commits that a follower is given at a time
RECENT = 512  # commits that are cached for followers who keep up
RECENT_CHANGES = 20_000  # and changes in them


class Lost(msgspec.Struct, frozen=True):
    """The commits after a number are no longer stored, or never were; `first` is the oldest."""

    first: int


class Progress(msgspec.Struct, frozen=True):
    """How far the driver is with an event. This is no commit, and is not stored."""

    event: str
    group: str
    progress: str  # empty: the attempt is over


class FeedEntry:
    """A commit for followers, and its rendering, once there is one."""

    __slots__ = ("__weakref__", "commit", "rendered", "size")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.rendered: bytes | None = None
        self.size = 1 + len(commit.puts) + sum(len(entry.items) for entry in commit.entries)

    @property
    def seq(self) -> int:
        return self.commit.seq


class Follower:
    """The position of one follower."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


class Feed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._followers: set[Follower] = set()
        self._woken: set[asyncio.Future[None]] = set()
        self._woken_by_progress: set[asyncio.Future[None]] = set()
        self._progress: dict[str, tuple[int, Progress]] = {}  # by event, numbered
        self._reports = 0  # the number of the latest
        self._recent: list[FeedEntry] = []  # without a gap, after `_before`
        self._before = 0
        self._entries: WeakValueDictionary[int, FeedEntry] = WeakValueDictionary()
        self._reading = asyncio.Lock()
        self.ended = False
        store.on_commit(self._on_commit)

    @property
    def seq(self) -> int:
        return self._store.seq

    @property
    def followers(self) -> int:
        return len(self._followers)

    @property
    def lag(self) -> int:
        """How many commits the slowest follower has not been given."""
        return max((self.seq - follower.seq for follower in self._followers), default=0)

    async def changed(self, group: str) -> None:
        """Wait for the next commit that changes this group."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append(future)
        await future

    @contextmanager
    def following(self, seq: int) -> Iterator[Follower]:
        follower = Follower(seq)
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    async def read(self, after: int) -> Sequence[FeedEntry] | Lost:
        """Return some of the commits after this one, in order; none if it was the last."""
        if after >= self.seq:
            return ()
        if cached := self._cached(after):
            return cached
        async with self._reading:  # another follower may read the same meanwhile
            return self._cached(after) or await self._read(after)

    def report(self, progress: Progress) -> None:
        """Tell followers how far the driver is with an event."""
        self._progress.pop(progress.event, None)
        if progress.progress:
            self._reports += 1
            self._progress[progress.event] = self._reports, progress
            _wake_all(self._woken_by_progress)

    def progress_after(self, report: int) -> tuple[int, list[Progress]]:
        """Return the latest progress of each event, if it was reported after this report, and the
        number of the latest report."""
        reports = self._progress.values()
        return self._reports, [progress for number, progress in reports if number > report]

    async def wait(self, after: int, timeout: float, report: int | None = None) -> bool:
        """Wait until there is a commit after this one, or progress after this report, or the feed
        has ended; False on timeout."""
        reported = report is not None and report < self._reports
        if after < self.seq or reported or self.ended:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._woken.add(woken)
        if report is not None:
            self._woken_by_progress.add(woken)
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return False
        finally:
            self._woken.discard(woken)
            self._woken_by_progress.discard(woken)
        return True

    def end(self) -> None:
        """End the feed, because the service is stopping."""
        self.ended = True
        _wake_all(self._woken)

    def _cached(self, after: int) -> Sequence[FeedEntry]:
        if not self._recent or after < self._before:
            return ()
        start = bisect_right(self._recent, after, key=lambda entry: entry.seq)
        if after != (self._recent[start - 1].seq if start else self._before):
            return ()  # a number that was skipped, so it is not from this feed
        return self._recent[start : start + FEED_PAGE]

    async def _read(self, after: int) -> Sequence[FeedEntry] | Lost:
        """Read from the store. If commit `after` or the next number is there, none is missing."""
        page: list[FeedEntry] = []
        fits = after == 0
        async for commit in self._store.commits(max(after - 1, 0)):
            if commit.seq == after:
                fits = True
                continue
            if not page and not (fits and after) and commit.seq != after + 1:
                return Lost(commit.seq)
            entry = self._entries.get(commit.seq) or FeedEntry(commit)
            self._entries[commit.seq] = entry
            page.append(entry)
            if len(page) == FEED_PAGE:
                break
        self._cache(after, page)
        return page

    def _cache(self, after: int, page: Sequence[FeedEntry]) -> None:
        """Cache what was read if it is at the end of the feed, or continues the cache."""
        if self._recent and after == self._recent[-1].seq:
            self._recent += page
        elif page and page[-1].seq == self.seq:
            self._recent, self._before = list(page), after
        size, drop = sum(entry.size for entry in self._recent), 0
        while drop < len(self._recent) and (
            len(self._recent) - drop > RECENT or size > RECENT_CHANGES
        ):
            size -= self._recent[drop].size
            drop += 1
        if drop:
            self._before = self._recent[drop - 1].seq
            del self._recent[:drop]

    def _on_commit(self, _commit: Commit, changed: Mapping[str, Group]) -> None:
        for name in changed:
            for future in self._waiting.pop(name, ()):
                if not future.done():
                    future.set_result(None)
        _wake_all(self._woken)


def _wake_all(futures: set[asyncio.Future[None]]) -> None:
    while futures:
        future = futures.pop()
        if not future.done():
            future.set_result(None)

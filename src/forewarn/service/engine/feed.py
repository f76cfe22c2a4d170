"""News of commits, in order: to waiters when their group changes, and to whoever follows them all.

A follower holds a number and nothing else: it reads what came after that from the store, at its
own pace. What was read last is kept for the others, so that many who keep up cost one reading.
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

FEED_PAGE = 64  # commits that a follower has in its hands at a time
RECENT = 512  # commits that are kept for followers who keep up
RECENT_CHANGES = 20_000  # and changes in them


class Lost(msgspec.Struct, frozen=True):
    """What came after this number is no longer there, or never was: where it begins instead."""

    first: int


class FeedEntry:
    """A commit for followers, and how it was put into bytes, if somebody has done that."""

    __slots__ = ("__weakref__", "commit", "rendered", "size")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        self.rendered: bytes | None = None
        self.size = 1 + len(commit.puts) + sum(len(entry.items) for entry in commit.entries)

    @property
    def seq(self) -> int:
        return self.commit.seq


class Follower:
    """How far somebody has come."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


class Feed:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._followers: set[Follower] = set()
        self._woken: set[asyncio.Future[None]] = set()
        self._recent: list[FeedEntry] = []  # without a gap, from behind `_before` on
        self._before = 0
        self._known: WeakValueDictionary[int, FeedEntry] = WeakValueDictionary()
        self._reading = asyncio.Lock()
        self.ended = False
        store.attach(self._on_commit)

    @property
    def seq(self) -> int:
        return self._store.seq

    @property
    def followers(self) -> int:
        return len(self._followers)

    @property
    def lag(self) -> int:
        """How many commits whoever is furthest behind has not been sent."""
        return max((self.seq - one.seq for one in self._followers), default=0)

    async def changed(self, group: str) -> None:
        """Until the next commit that touches this group."""
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
        """Some of what came after this commit, in order; nothing if it was the last."""
        if after >= self.seq:
            return ()
        if found := self._at_hand(after):
            return found
        async with self._reading:  # whoever waited for the same has it then
            return self._at_hand(after) or await self._read(after)

    async def news(self, after: int, patience: float) -> bool:
        """Until there is something after this commit, or it is over; False if it takes longer."""
        if after < self.seq or self.ended:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._woken.add(woken)
        try:
            async with asyncio.timeout(patience):
                await woken
        except TimeoutError:
            return False
        finally:
            self._woken.discard(woken)
        return True

    def end(self) -> None:
        """The service stops: whoever follows is to come back later."""
        self.ended = True
        self._wake()

    def _at_hand(self, after: int) -> Sequence[FeedEntry]:
        if not self._recent or after < self._before:
            return ()
        start = bisect_right(self._recent, after, key=lambda told: told.seq)
        if after != (self._recent[start - 1].seq if start else self._before):
            return ()  # a number that was skipped: whoever has it has it from somewhere else
        return self._recent[start : start + FEED_PAGE]

    async def _read(self, after: int) -> Sequence[FeedEntry] | Lost:
        """Is the commit there, or the one that follows it, then nothing is missing between."""
        page: list[FeedEntry] = []
        fits = after == 0
        async for commit in self._store.commits(max(after - 1, 0)):
            if commit.seq == after:
                fits = True
                continue
            if not page and not (fits and after) and commit.seq != after + 1:
                return Lost(commit.seq)
            told = self._known.get(commit.seq) or FeedEntry(commit)
            self._known[commit.seq] = told
            page.append(told)
            if len(page) == FEED_PAGE:
                break
        self._keep(after, page)
        return page

    def _keep(self, after: int, page: Sequence[FeedEntry]) -> None:
        """For the others, if this is where everybody is: at the end, or on the way there."""
        if self._recent and after == self._recent[-1].seq:
            self._recent += page
        elif page and page[-1].seq == self.seq:
            self._recent, self._before = list(page), after
        size, drop = sum(told.size for told in self._recent), 0
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
        self._wake()

    def _wake(self) -> None:
        woken, self._woken = self._woken, set()
        for future in woken:
            if not future.done():
                future.set_result(None)

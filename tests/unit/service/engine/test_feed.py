"""Commits as followers read them: in order, whole, each once; or told why that cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core import Group, Machine
from forewarn.core.changes import Change, GroupDefined, MachinePut
from forewarn.core.fleet import GroupKind, Host, Place, Policy
from forewarn.core.history import HistoryReplayer, HistoryWriter
from forewarn.core.registry import HostPut
from forewarn.service.engine import feed as feeds
from forewarn.service.engine.feed import FEED_PAGE, Feed, FeedEntry, Lost
from forewarn.store import MemoryStore, Store
from forewarn.store.port import Batch, Commit, Entry
from forewarn.store.sqlite.engine import SqliteStore

DEFINED = GroupDefined(GroupKind.SCALE_SET, Policy(), Place())


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "memory":
        return MemoryStore
    return lambda: SqliteStore(tmp_path / "state.db")


def on(
    engine: Callable[[], Store], life: Callable[[Store, Feed], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        store = engine()
        await store.open()
        try:
            await life(store, Feed(store))
        finally:
            await store.close()

    asyncio.run(run())


async def commit(store: Store, at: int = 1, *items: Change) -> None:
    entry = Entry("web", items or (DEFINED,))
    await store.transact(lambda _: Batch(at, entries=(entry,)))


async def all_after(feed: Feed, after: int) -> list[int]:
    found: list[int] = []
    while page := await feed.read(found[-1] if found else after):
        assert not isinstance(page, Lost)
        found += [reported.seq for reported in page]
    return found


def test_a_follower_reads_every_commit_once_and_in_order(
    engine: Callable[[], Store],
) -> None:
    async def life(store: Store, feed: Feed) -> None:
        many = 3 * FEED_PAGE + 5
        for _ in range(many):
            await commit(store)
        assert await all_after(feed, 0) == list(range(1, many + 1))
        assert await all_after(feed, many - 2) == [many - 1, many]
        assert await feed.read(many) == ()

    on(engine, life)


def test_followers_that_keep_up_share_one_read(engine: Callable[[], Store]) -> None:
    async def life(store: Store, feed: Feed) -> None:
        await commit(store)
        first = await asyncio.gather(*(feed.read(0) for _ in range(50)))
        await commit(store)
        then = await asyncio.gather(*(feed.read(1) for _ in range(50)))
        assert len({id(page[0]) for page in first if not isinstance(page, Lost)}) == 1
        assert len({id(page[0]) for page in then if not isinstance(page, Lost)}) == 1

    on(engine, life)


def test_the_commits_kept_for_followers_are_limited(
    engine: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RECENT", 20)

    async def life(store: Store, feed: Feed) -> None:
        for n in range(30):
            await commit(store)
            assert [reported.seq for reported in _page(await feed.read(n))] == [n + 1]
        assert len(feed._recent) == 20
        # However large a commit is, it is not kept longer than somebody reads it.
        monkeypatch.setattr(feeds, "RECENT_CHANGES", 10)
        large = [MachinePut(Machine(name=f"m{n}")) for n in range(20)]
        await commit(store, 1, *large)
        page = _page(await feed.read(store.seq - 1))
        assert page[0].size > 20
        assert feed._recent == []
        assert [reported.seq for reported in _page(await feed.read(store.seq - 2))] == [
            store.seq - 1,
            store.seq,
        ]

    on(engine, life)


def test_a_number_whose_successors_were_pruned_is_refused_with_the_first_there_is(
    engine: Callable[[], Store],
) -> None:
    async def life(store: Store, feed: Feed) -> None:
        for at in range(1, 11):
            await commit(store, at)
        await store.prune(6, lambda _: False)
        assert await feed.read(3) == Lost(6)
        assert await feed.read(0) == Lost(6)
        assert [reported.seq for reported in _page(await feed.read(5))] == [6, 7, 8, 9, 10]

    on(engine, life)


def test_numbers_that_a_restored_copy_has_skipped_are_unknown_and_those_before_are_not(
    engine: Callable[[], Store],
) -> None:
    async def life(store: Store, feed: Feed) -> None:
        for _ in range(3):
            await commit(store)
        store.skip_numbers(1_000)
        await commit(store)
        assert [reported.seq for reported in _page(await feed.read(3))] == [1_004]
        assert await feed.read(20) == Lost(1_004)  # read from what the copy knows nothing of
        assert [reported.seq for reported in _page(await feed.read(1))] == [2, 3, 1_004]

    on(engine, life)


def test_a_follower_is_woken_by_a_commit_and_by_the_end(engine: Callable[[], Store]) -> None:
    async def life(store: Store, feed: Feed) -> None:
        async with asyncio.TaskGroup() as tasks:
            news = tasks.create_task(feed.wait(0, timeout=30.0))
            tasks.create_task(commit(store))
        assert news.result()
        assert not await feed.wait(1, timeout=0.001)
        async with asyncio.TaskGroup() as tasks:
            over = tasks.create_task(feed.wait(1, timeout=30.0))
            await asyncio.wait([tasks.create_task(commit(store, 2))])
        assert over.result()
        feed.end()
        assert await feed.wait(2, timeout=30.0)
        assert feed.ended

    on(engine, life)


def test_the_lag_is_that_of_the_slowest_follower(engine: Callable[[], Store]) -> None:
    async def life(store: Store, feed: Feed) -> None:
        for _ in range(5):
            await commit(store)
        assert (feed.followers, feed.lag) == (0, 0)
        with feed.following(5), feed.following(2):
            assert (feed.followers, feed.lag) == (2, 3)
        assert (feed.followers, feed.lag) == (0, 0)

    on(engine, life)


def test_a_commit_that_is_read_again_has_the_texts_of_the_history(
    engine: Callable[[], Store],
) -> None:
    """Though the states before it are long gone."""
    web = Machine(name="web_0", host="h1")
    moved = msgspec.structs.replace(web, host="h2")
    gone = msgspec.structs.replace(moved, gone="evicted")
    works: list[tuple[tuple[Change, ...], tuple[Any, ...]]] = [
        (
            (DEFINED, MachinePut(web), MachinePut(Machine(name="web_1"))),
            (HostPut(Host(name="h1")),),
        ),
        ((MachinePut(moved, by="ann"),), (HostPut(Host(name="h1", labels={"row": "2"})),)),
        ((MachinePut(gone),), ()),
        ((MachinePut(moved), msgspec.structs.replace(DEFINED, labels={"a": "b"})), ()),
    ]

    async def life(store: Store, feed: Feed) -> None:
        written: list[Any] = []
        for items, puts in works:
            before: dict[str, Group] = dict(store.groups)
            hosts = dict(store.registry.hosts)
            batch = Batch(7, entries=(Entry("web", items),), puts=puts)
            await store.transact(lambda _, batch=batch: batch)  # type: ignore[misc]
            written += HistoryWriter(before, hosts).records(7, [("web", items)], puts)
        reported = [commit async for commit in store.commits(0)]
        again = [record for commit in reported for record in replayed(commit)]
        assert again == written
        assert [record.what.value for record in again] == [
            "host-added",
            "group-changed",
            "machine-added",
            "machine-added",
            "host-changed",
            "machine-moved",
            "machine-gone",
            "machine-restored",
            "group-changed",
        ]

    on(engine, life)


def replayed(commit: Commit) -> list[Any]:
    changed = [(entry.group, entry.items) for entry in commit.entries]
    return list(HistoryReplayer(commit.replay_notes).records(commit.at, changed, commit.puts))


def _page(found: Any) -> list[FeedEntry]:
    assert not isinstance(found, Lost), found
    return list(found)

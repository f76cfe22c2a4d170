"""What every engine promises, checked on each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from forewarn.core import EventType, Group, GroupKind, Machine, Now, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes, apply
from forewarn.store import Batch, Commit, Entry, MemoryStore, Store, StoreFailed
from forewarn.store.memory import Disk
from forewarn.store.port import Sightings, States, Work
from forewarn.store.sqlite import SqliteStore

Reopen: TypeAlias = Callable[[], Store]

NOW = Now(at=1_800_000_000_000_000)


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Opens the same state again each time it is called."""
    if request.param == "memory":
        disk = Disk()
        return lambda: MemoryStore(disk)
    return lambda: SqliteStore(tmp_path / "state.db")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def using(store: Store, body: Callable[[Store], Awaitable[None]]) -> None:
    await store.open()
    try:
        await body(store)
    finally:
        await store.close()


def doing(group: str, command: c.Command, now: Now = NOW) -> Work:
    def work(states: States) -> Batch:
        decision = decide(states[group], command, now)
        assert isinstance(decision, Changes)
        return Batch(now.at, 0, (Entry(group, decision.items),) if decision.items else ())

    return work


def web(*names: str) -> c.Define:
    return c.Define(
        force=True,
        kind=GroupKind.SCALE_SET,
        machines=tuple(
            Machine(name=name, addresses=(f"10.0.0.{i}",)) for i, name in enumerate(names)
        ),
    )


def reboot(id: str, machine: str = "web_0") -> c.Raise:
    return c.Raise(id=id, type=EventType.REBOOT, machines=(machine,), by="test", cause=f"for {id}")


async def a_life(store: Store) -> None:
    """A group is defined, listens, and has events in every state."""
    await store.transact(doing("web", web("web_0", "web_1")))
    await store.transact(doing("web", c.Enable()))
    for id in ("A", "B", "C"):
        await store.transact(doing("web", reboot(id)))
    await store.transact(doing("web", c.Cancel(id="B", by="test")))
    await store.transact(doing("web", c.Approve(ids=("A",), by="web_1")))


def test_what_was_committed_is_there_after_reopening(engine: Reopen) -> None:
    kept: dict[str, Group] = {}

    async def live(store: Store) -> None:
        await a_life(store)
        kept.update(store.groups)

    async def look(store: Store) -> None:
        assert dict(store.groups) == kept
        assert store.seq == 7
        assert [event.id for event in store.groups["web"].events] == ["A", "C"]

    run(using(engine(), live))
    run(using(engine(), look))


def test_a_group_about_which_nothing_special_is_said_is_kept_too(engine: Reopen) -> None:
    async def live(store: Store) -> None:
        plain = c.Define(kind=GroupKind.STANDALONE, machines=(Machine(name="jump"),))
        await store.transact(doing("jump", plain))

    async def look(store: Store) -> None:
        assert store.groups["jump"] == Group(name="jump", machines=(Machine(name="jump"),))

    run(using(engine(), live))
    run(using(engine(), look))


def test_replaying_the_history_from_nothing_gives_the_stored_state(engine: Reopen) -> None:
    async def live(store: Store) -> None:
        await a_life(store)
        await store.transact(doing("web", web("web_1", "web_2")))

    async def replay(store: Store) -> None:
        groups: dict[str, Group] = {}
        async for commit in store.commits(0):
            for entry in commit.entries:
                before = groups.get(entry.group, Group(name=entry.group))
                groups[entry.group] = apply(before, entry.items)
        assert groups == dict(store.groups)

    run(using(engine(), live))
    run(using(engine(), replay))


def test_commits_come_in_order_and_without_a_gap(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await a_life(store)
        assert [commit.seq async for commit in store.commits(0)] == [1, 2, 3, 4, 5, 6, 7]
        assert [commit.seq async for commit in store.commits(5)] == [6, 7]
        assert [commit.seq async for commit in store.commits(7)] == []

    run(using(engine(), body))


def test_listeners_are_told_before_the_caller_hears(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        told: list[int] = []
        store.attach(lambda commit, _: told.append(commit.seq))
        commit = await store.transact(doing("web", web("web_0")))
        assert commit is not None
        assert told == [commit.seq]

    run(using(engine(), body))


def test_many_at_once_are_decided_one_after_the_other(engine: Reopen) -> None:
    """Each sees what those before it did, though they share a commit on disk."""

    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        await asyncio.gather(*(store.transact(doing("web", reboot(f"E{n}"))) for n in range(50)))
        assert len(store.groups["web"].events) == 50
        assert [commit.seq async for commit in store.commits(0)] == list(range(1, 52))

    run(using(engine(), body))


def test_one_commit_may_span_several_groups(engine: Reopen) -> None:
    async def move(store: Store) -> None:
        await store.transact(doing("a", web("web_0", "web_1")))

        def work(states: States) -> Batch:
            entries = []
            for group, machines in (("a", ("web_1",)), ("b", ("web_0",))):
                decision = decide(states[group], web(*machines), NOW)
                assert isinstance(decision, Changes)
                entries.append(Entry(group, decision.items))
            return Batch(NOW.at, 0, tuple(entries))

        commit = await store.transact(work)
        assert commit is not None
        assert [entry.group for entry in commit.entries] == ["a", "b"]

    async def look(store: Store) -> None:
        names = {g.name: [m.name for m in g.machines] for g in store.groups.values()}
        assert names == {"a": ["web_1"], "b": ["web_0"]}

    run(using(engine(), move))
    run(using(engine(), look))


def test_a_work_that_raises_harms_only_itself(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        def broken(states: States) -> Batch:
            raise LookupError("broken")

        results = await asyncio.gather(
            store.transact(doing("web", web("web_0"))),
            store.transact(broken),
            store.transact(doing("web", reboot("A"))),
            return_exceptions=True,
        )
        assert isinstance(results[1], LookupError)
        assert [type(r) for r in (results[0], results[2])] == [Commit, Commit]
        assert len(store.groups["web"].events) == 1

    run(using(engine(), body))


def test_if_a_commit_cannot_be_made_durable_every_caller_of_it_is_refused(engine: Reopen) -> None:
    """Also those who changed nothing but saw what now is not so. Then work goes on."""

    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        before = dict(store.groups)
        persist = store._persist  # type: ignore[attr-defined]

        async def fail(*_: object) -> None:
            raise StoreFailed("no room")

        store._persist = fail  # type: ignore[attr-defined]
        results = await asyncio.gather(
            store.transact(doing("web", reboot("A"))),
            store.transact(lambda _: Batch(NOW.at)),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [StoreFailed, StoreFailed]
        assert dict(store.groups) == before
        assert store.seq == 1
        store._persist = persist  # type: ignore[attr-defined]
        await store.transact(doing("web", reboot("B")))
        assert [event.id for event in store.groups["web"].events] == ["B"]
        assert [commit.seq async for commit in store.commits(0)] == [1, 2]

    run(using(engine(), body))


def test_events_that_are_over_are_found_by_id_by_group_and_by_cause(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await a_life(store)
        assert set(await store.records(["A", "B", "nope"])) == {"B"}
        assert [event.id for event in await store.past()] == ["B"]
        assert [event.id for event in await store.past(group="web")] == ["B"]
        assert [event.id for event in await store.past(group="sql")] == []
        assert [event.id for event in await store.caused_by("for B")] == ["B"]
        assert [event.id for event in await store.caused_by("for A")] == ["A"]

    run(using(engine(), body))


def test_the_latest_that_is_over_comes_first(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        for id in ("A", "B", "C"):
            await store.transact(doing("web", reboot(id)))
            await store.transact(doing("web", c.Cancel(id=id, by="test")))
        assert [event.id for event in await store.past()] == ["C", "B", "A"]
        assert [event.id for event in await store.past(limit=2)] == ["C", "B"]

    run(using(engine(), body))


def test_sightings_are_kept_and_a_later_saving_adds_to_them(engine: Reopen) -> None:
    async def save(store: Store) -> None:
        await store.save(Sightings(seen={"web": 5, "sql": 6}, served_until=100, lost=1))
        await store.save(Sightings(seen={"web": 7}, served_until=200, lost=2))

    async def look(store: Store) -> None:
        found = await store.sightings()
        assert found == Sightings(seen={"web": 7, "sql": 6}, served_until=200, lost=2)

    run(using(engine(), save))
    run(using(engine(), look))


def test_a_new_store_has_seen_nothing(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        assert await store.sightings() == Sightings(seen={})
        assert store.seq == 0
        assert dict(store.groups) == {}

    run(using(engine(), look))


def test_a_listener_that_fails_keeps_nothing_from_anybody(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        told: list[int] = []

        def broken(*_: object) -> None:
            raise LookupError("broken")

        store.attach(broken)
        store.attach(lambda commit, _: told.append(commit.seq))
        await store.transact(doing("web", web("web_0")))
        await store.transact(doing("web", reboot("A")))
        assert told == [1, 2]

    run(using(engine(), body))

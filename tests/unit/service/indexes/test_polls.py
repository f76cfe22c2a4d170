"""Index of polls: who was shown an event, also after a restart and once the event is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from forewarn.core import Changes, Event, EventType, Group, World, decide
from forewarn.core import commands as c
from forewarn.core.fleet import GroupKind, Machine
from forewarn.core.history import RecordKind
from forewarn.core.time import SECOND
from forewarn.service.indexes.polls import LOAD_SLICE, MAX_UNSAVED, PollIndex
from forewarn.store.memory import Disk, MemoryStore
from forewarn.store.port import (
    Batch,
    Entry,
    HistoryQuery,
    MachineSighting,
    PollSightings,
    States,
    StoreFailed,
    Work,
)
from forewarn.support import guard

NOW = World(at=1_700_000_000 * SECOND)
RAISED = c.Raise(id="A", type=EventType.REBOOT, machines=("web_0", "web_1"), by="test")


def later(seconds: int) -> World:
    return msgspec.structs.replace(NOW, at=NOW.at + seconds * SECOND)


def doing(command: c.Command, now: World = NOW) -> Work:
    def work(states: States) -> Batch:
        decision = decide(states["web"], command, now)
        assert isinstance(decision, Changes)
        return Batch(now.at, 0, (Entry("web", decision.items),))

    return work


async def opened(disk: Disk | None = None) -> tuple[MemoryStore, PollIndex]:
    store = MemoryStore(disk)
    await store.open()
    index = PollIndex(store)
    await index.load()
    return store, index


async def raised() -> tuple[MemoryStore, PollIndex, Event]:
    store, index = await opened()
    machines = tuple(Machine(name=f"web_{n}") for n in range(3))
    await store.transact(doing(c.Define(kind=GroupKind.SCALE_SET, machines=machines)))
    await store.transact(doing(c.Enable()))
    await store.transact(doing(RAISED))
    return store, index, store.groups["web"].events[0]


async def approve(store: MemoryStore, seconds: int) -> None:
    await store.transact(doing(c.Approve(ids=("A",), by="web_0"), later(seconds)))


async def finish(store: MemoryStore, seconds: int) -> Event:
    await store.transact(doing(c.Finish(id="A", by="test", reason="done"), later(seconds)))
    return (await store.ended_events(["A"]))["A"]


def poll(index: PollIndex, machine: str, seconds: int) -> None:
    index.polled(machine, "web", "2020-07-01", 2, ("A",), later(seconds))


def test_machines_of_many_groups_are_loaded_in_turns_with_whatever_else_happens() -> None:
    async def body() -> None:
        disk = Disk()
        names = [f"g{n}" for n in range(3 * LOAD_SLICE)]
        for name in names:
            disk.groups[name] = Group(name=name, machines=(Machine(name=f"{name}_0"),))
        sighting = MachineSighting(polled=NOW.at, version="2020-07-01", polls=1)
        machines = {f"{name}_0": sighting for name in names}
        disk.sightings = PollSightings(seen={}, machines=machines)
        store = MemoryStore(disk)
        await store.open()
        index = PollIndex(store)
        first, last = names[0], names[-1]
        loading = asyncio.ensure_future(index.load())  # noqa: TID251
        while index.polls(f"{first}_0") is None:
            await guard.pause(0)
        assert index.polls(f"{last}_0") is None
        # What happens meanwhile is newer than what is loaded.
        index.polled(f"{last}_0", last, "2020-07-01", 2, (), later(1))
        await loading
        polls = [index.polls(f"{name}_0") for name in names]
        assert [p.last for p in polls if p] == [NOW.at] * (len(names) - 1) + [later(1).at]

    asyncio.run(body())


async def shown_at_start(store: MemoryStore) -> dict[str, int] | None:
    """Return for how many seconds machines had been shown the event when it started, according to
    the history."""
    (record,) = await store.history(HistoryQuery(what=(RecordKind.STARTED,)))
    if record.shown is None:
        return None
    return {name: (at - NOW.at) // SECOND for name, at in record.shown.items()}


def play(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(body())  # type: ignore[arg-type]


def test_a_restart_does_not_change_since_when_a_machine_has_been_shown_an_event() -> None:
    async def body() -> None:
        store, index, _ = await raised()
        poll(index, "web_0", 1)
        await index.save(later(5))
        store, index = await opened(store.disk)
        poll(index, "web_0", 60)
        poll(index, "web_1", 61)
        await approve(store, 70)
        await index.save(later(75))
        assert await shown_at_start(store) == {"web_0": 1, "web_1": 61}

    play(body)


def test_what_is_shown_before_a_start_is_saved_at_once_when_the_event_starts() -> None:
    async def body() -> None:
        store, index, _ = await raised()
        poll(index, "web_2", 1)
        assert index.first_unsaved.is_set()
        await index.save_first_sightings(later(1))
        poll(index, "web_0", 2)
        assert not index.first_unsaved.is_set()
        await approve(store, 3)
        assert index.first_unsaved.is_set()
        await index.save_first_sightings(later(3))
        assert await shown_at_start(store) == {"web_0": 2}

    play(body)


def test_a_poll_that_is_reported_after_the_start_or_the_end_of_an_event_counts() -> None:
    async def body() -> None:
        store, index, _ = await raised()
        poll(index, "web_0", 2)
        await index.save(later(3))
        await approve(store, 4)
        index.shown("web_0", "web", ("A",), later(1).at)
        event = await finish(store, 5)
        shown = await index.when_shown(event, event.resources)
        assert shown.since == {"web_0": later(1).at}  # before it is saved, too
        await index.save(later(6))
        index.shown_before("web_1", "web", ("A",), later(3).at)
        await index.save(later(7))
        assert await shown_at_start(store) == {"web_0": 1, "web_1": 3}

    play(body)


def test_a_save_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        store, index, _ = await raised()
        poll(index, "web_0", 1)

        async def fail(_: PollSightings) -> None:
            poll(index, "web_1", 2)
            raise StoreFailed("full")

        with monkeypatch.context() as patch:
            patch.setattr(store, "save", fail)
            with pytest.raises(StoreFailed):
                await index.save(later(5))
        await finish_after_start(store)
        await index.save(later(10))
        assert await shown_at_start(store) == {"web_0": 1, "web_1": 2}

    async def finish_after_start(store: MemoryStore) -> None:
        await approve(store, 6)
        await finish(store, 7)

    play(body)


def test_an_event_of_a_service_that_did_not_record_it_is_not_declared_unseen() -> None:
    async def body() -> None:
        store, index, _ = await raised()
        poll(index, "web_0", 1)
        await index.save(later(1))
        await approve(store, 2)
        event = await finish(store, 3)
        disk = store.disk
        (seen,) = disk.seen_events.values()
        disk.record_shown(msgspec.structs.replace(seen, shown=None))
        shown = await index.when_shown(event, event.resources)
        assert (shown.since, shown.complete) == ({"web_0": later(1).at}, False)
        assert await shown_at_start(store) is None

    play(body)


def test_events_of_other_groups_and_very_many_late_ones_are_not_kept() -> None:
    async def body() -> None:
        store, index, _ = await raised()
        await approve(store, 2)
        await finish(store, 3)
        index.shown_before("db_0", "db", ("A",), later(1).at)
        index.shown_before("web_0", "web", (f"{n}" for n in range(2 * MAX_UNSAVED)), later(1).at)
        assert len(index._unsaved_sights) == MAX_UNSAVED
        await index.save(later(5))
        assert index._unsaved_sights == {}
        assert await shown_at_start(store) == {}

    play(body)

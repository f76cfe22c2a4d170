"""What every engine promises, checked on each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType, Group, GroupKind, Machine, World, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes, apply
from forewarn.core.fleet import Host
from forewarn.core.history import Record, RecordKind, seen
from forewarn.core.registry import ClockAccepted, HostPut
from forewarn.store import Batch, Commit, Entry, Store, StoreFailed
from forewarn.store.port import HistoryQuery, MachineSighting, PollSightings, States, Work
from helpers.engines import ENGINES, Reopen, state

NOW = World(at=1_700_000_000_000_000)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    """Opens the same state again each time it is called."""
    return state(request.param, tmp_path)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def using(store: Store, body: Callable[[Store], Awaitable[None]]) -> None:
    await store.open()
    try:
        await body(store)
    finally:
        await store.close()


def doing(group: str, command: c.Command, now: World = NOW) -> Work:
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


def test_a_group_with_default_values_is_kept(engine: Reopen) -> None:
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


def test_listeners_are_called_before_the_caller_is_answered(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        reported: list[int] = []
        store.on_commit(lambda commit, _: reported.append(commit.seq))
        commit = await store.transact(doing("web", web("web_0")))
        assert commit is not None
        assert reported == [commit.seq]

    run(using(engine(), body))


def test_concurrent_changes_are_decided_one_after_the_other(engine: Reopen) -> None:
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


def test_a_change_that_raises_fails_alone(engine: Reopen) -> None:
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
        assert set(await store.ended_events(["A", "B", "nope"])) == {"B"}
        assert set(await store.ended_events(["B", *map(str, range(70_000))])) == {"B"}
        assert [event.id for event in await store.past_events()] == ["B"]
        assert [event.id for event in await store.past_events(group="web")] == ["B"]
        assert [event.id for event in await store.past_events(group="sql")] == []
        assert [event.id for event in await store.events_by_cause("for B")] == ["B"]
        assert [event.id for event in await store.events_by_cause("for A")] == ["A"]

    run(using(engine(), body))


def test_the_latest_finished_event_comes_first(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        for id in ("A", "B", "C"):
            await store.transact(doing("web", reboot(id)))
            await store.transact(doing("web", c.Cancel(id=id, by="test")))
        assert [event.id for event in await store.past_events()] == ["C", "B", "A"]
        assert [event.id for event in await store.past_events(limit=2)] == ["C", "B"]
        assert [event.id for event in await store.past_events(limit=2, before="C")] == ["B", "A"]
        assert [event.id for event in await store.past_events(before="A")] == []
        assert [event.id for event in await store.past_events(before="nobody")] == []

    run(using(engine(), body))


def test_sightings_are_kept_and_a_later_saving_adds_to_them(engine: Reopen) -> None:
    async def save(store: Store) -> None:
        await store.save(PollSightings(seen={"web": 5, "sql": 6}, served_until=100, lost=1))
        await store.save(PollSightings(seen={"web": 7}, served_until=200, lost=2))
        await store.save(PollSightings(seen={}))  # of the service itself, nothing is new

    async def look(store: Store) -> None:
        found = await store.sightings()
        assert found == PollSightings(seen={"web": 7, "sql": 6}, served_until=200, lost=2)

    run(using(engine(), save))
    run(using(engine(), look))


def sighting(polled: int, polls: int = 1, answered: int | None = None) -> MachineSighting:
    return MachineSighting(polled=polled, version="2020-07-01", polls=polls, answered=answered)


def test_machines_that_were_seen_are_kept_until_they_are_gone(engine: Reopen) -> None:
    async def save(store: Store) -> None:
        machines = [Machine(name=name, spot=True) for name in ("web_0", "web_1", "web_2", "web_3")]
        define = c.Define(kind=GroupKind.SCALE_SET, machines=tuple(machines))
        await store.transact(doing("web", define))
        await store.save(PollSightings(seen={}, machines={m.name: sighting(5) for m in machines}))
        await store.save(PollSightings(seen={}, machines={"web_0": sighting(7, 2, 6)}))
        fewer = c.Define(force=True, kind=GroupKind.SCALE_SET, machines=tuple(machines[:3]))
        await store.transact(doing("web", fewer))
        await store.transact(doing("web", c.Enable()))
        await store.transact(doing("web", c.Evict(id="E", machine="web_2", by="test")))
        later = World(at=NOW.at + 3_600_000_000)
        await store.transact(doing("web", c.Tick(), later))
        end = c.Finish(id="E", by="test", reason="gone")
        await store.transact(doing("web", end, later))
        assert store.groups["web"].named(["web_2"])["web_2"].gone

    async def look(store: Store) -> None:
        expected = {"web_0": sighting(7, 2, 6), "web_1": sighting(5)}
        assert (await store.sightings()).machines == expected

    run(using(engine(), save))
    run(using(engine(), look))


def test_polls_that_a_clock_dated_too_late_are_moved_back_with_it(engine: Reopen) -> None:
    ahead = NOW.at + 1_000

    async def save(store: Store) -> None:
        await store.transact(doing("web", web("web_0", "web_1")))
        machines = {"web_0": sighting(ahead, 1, ahead - 10), "web_1": sighting(NOW.at - 5)}
        await store.save(PollSightings(seen={}, machines=machines))
        accepted = ClockAccepted(before=ahead, by="test")
        await store.transact(lambda _: Batch(NOW.at, 0, puts=(accepted,)))

    async def look(store: Store) -> None:
        expected = {"web_0": sighting(NOW.at, 1, NOW.at - 10), "web_1": sighting(NOW.at - 5)}
        assert (await store.sightings()).machines == expected

    run(using(engine(), save))
    run(using(engine(), look))


def test_a_new_store_has_seen_nothing(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        assert await store.sightings() == PollSightings(seen={})
        assert store.seq == 0
        assert dict(store.groups) == {}

    run(using(engine(), look))


def test_a_listener_that_fails_does_not_affect_other_listeners_or_callers(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        reported: list[int] = []

        def broken(*_: object) -> None:
            raise LookupError("broken")

        store.on_commit(broken)
        store.on_commit(lambda commit, _: reported.append(commit.seq))
        await store.transact(doing("web", web("web_0")))
        await store.transact(doing("web", reboot("A")))
        assert reported == [1, 2]

    run(using(engine(), body))


LATER = World(at=NOW.at + 1_000_000)
LATEST = World(at=NOW.at + 2_000_000)


async def everything(store: Store, **wanted: Any) -> list[str]:
    found = await store.history(HistoryQuery(**{"limit": 1_000, **wanted}))
    return [
        f"{record.what.value} {record.event or record.machine or record.host}" for record in found
    ]


async def a_history(store: Store) -> None:
    """Two machines, an event of each at a different time, and a host."""
    await store.transact(doing("web", web("web_0", "web_1")))
    await store.transact(doing("web", reboot("A", "web_0")))
    await store.transact(doing("web", reboot("B", "web_1"), LATER))
    await store.transact(doing("web", c.Cancel(id="A", by="ann"), LATER))
    host = HostPut(Host(name="rack-1"), "ann")
    await store.transact(lambda _: Batch(LATEST.at, 0, puts=(host,)))


def test_the_history_is_asked_by_machine_group_host_event_kind_and_time(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await a_history(store)
        added = ["group-changed ", "machine-added web_0", "machine-added web_1"]
        of_a, of_b = ["raised A", "withdrawn A"], ["raised B"]
        assert await everything(store) == [
            *added,
            "raised A",
            "raised B",
            "withdrawn A",
            "host-added rack-1",
        ]
        assert await everything(store, machine="web_0") == ["machine-added web_0", *of_a]
        assert await everything(store, machine="web_1") == ["machine-added web_1", *of_b]
        assert await everything(store, event="A") == of_a
        assert await everything(store, host="rack-1") == ["host-added rack-1"]
        assert await everything(store, group="web", since=LATER.at) == ["raised B", "withdrawn A"]
        assert await everything(store, until=LATER.at) == [*added, "raised A"]
        assert await everything(store, what=(RecordKind.RAISED,)) == ["raised A", "raised B"]
        assert await everything(store, what=(RecordKind.RAISED,), machine="web_1") == of_b
        assert await everything(store, machine="web_0", event="B") == []
        assert await everything(store, newest_first=True, limit=2) == [
            "host-added rack-1",
            "withdrawn A",
        ]

    run(using(engine(), look))


def test_a_record_has_every_field_that_is_known(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await a_history(store)
        (over,) = await store.history(HistoryQuery(what=(RecordKind.WITHDRAWN,)))
        assert over == Record(
            seq=over.seq,
            at=LATER.at,
            what=RecordKind.WITHDRAWN,
            by="ann",
            group="web",
            event="A",
            type="Reboot",
            machines=("web_0",),
            cause="for A",
            note="cancelled by ann",
        )

    run(using(engine(), look))


def test_the_history_is_read_page_by_page_in_both_directions(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await a_history(store)
        whole = await store.history(HistoryQuery())
        for newest_first in (False, True):
            found: list[Record] = []
            mark: tuple[int, int] | None = None
            while True:
                page = await store.history(
                    HistoryQuery(limit=2, newest_first=True, before=mark)
                    if newest_first
                    else HistoryQuery(limit=2, after=mark)
                )
                found += page
                if len(page) < 2:
                    break
                mark = page[-1].at, page[-1].seq
            assert found == (list(reversed(whole)) if newest_first else whole)

    run(using(engine(), look))


def test_the_history_outlives_the_engine_and_goes_on_counting(engine: Reopen) -> None:
    async def live(store: Store) -> None:
        await a_history(store)

    async def look(store: Store) -> None:
        before = [record.seq for record in await store.history(HistoryQuery())]
        await store.transact(doing("web", c.Cancel(id="B", by="ann"), LATEST))
        after = [record.seq for record in await store.history(HistoryQuery())]
        assert before == list(range(1, 8))
        assert after == list(range(1, 9))

    run(using(engine(), live))
    run(using(engine(), look))


def test_after_a_number_records_come_in_the_order_of_writing(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await a_history(store)
        shown = seen(store.groups["web"].events[0], "web_1", NOW.at)
        await store.save(PollSightings(seen={}, firsts=(shown,)))
        by_number = await store.history(HistoryQuery(after_seq=2))
        assert [record.seq for record in by_number] == [3, 4, 5, 6, 7, 8]
        assert by_number[-1].what is RecordKind.SEEN
        by_time = await store.history(HistoryQuery())
        assert by_time[-1].what is not RecordKind.SEEN
        few = await store.history(HistoryQuery(after_seq=0, group="web", limit=2))
        assert [record.seq for record in few] == [1, 2]
        assert list(await store.history(HistoryQuery(after_seq=8))) == []

    run(using(engine(), body))


def test_the_first_sighting_of_an_event_is_recorded_once(engine: Reopen) -> None:
    async def sight(store: Store, by: str, at: int) -> None:
        event = store.groups["web"].events[0]
        await store.save(PollSightings(seen={}, firsts=(seen(event, by, at),)))

    async def live(store: Store) -> None:
        await store.transact(doing("web", web("web_0", "web_1")))
        await store.transact(doing("web", reboot("A")))
        await sight(store, "web_1", NOW.at + 5)
        await sight(store, "web_0", NOW.at + 6)

    async def again(store: Store) -> None:
        await sight(store, "web_0", NOW.at + 7)
        (first,) = await store.history(HistoryQuery(what=(RecordKind.SEEN,)))
        assert (first.by, first.at, first.event) == ("web_1", NOW.at + 5, "A")
        assert await everything(store, machine="web_1", event="A") == ["seen A"]
        assert await everything(store, machine="web_0", event="A") == ["raised A", "seen A"]

    run(using(engine(), live))
    run(using(engine(), again))


async def _shown_before_the_start(store: Store) -> None:
    """An event of two machines, of which one has been shown it, and is shown it when it starts."""
    await store.transact(doing("web", web("web_0", "web_1", "web_2")))
    await store.transact(doing("web", c.Enable()))
    raised = c.Raise(id="A", type=EventType.REBOOT, machines=("web_0", "web_1"), by="test")
    await store.transact(doing("web", raised))
    event = store.groups["web"].events[0]
    for shown in ({}, {"web_0": NOW.at + 6}):
        await store.save(PollSightings(seen={}, firsts=(seen(event, "web_2", NOW.at + 5, shown),)))
    await store.transact(doing("web", c.Approve(ids=("A",), by="web_0"), LATER))


def test_the_history_has_who_had_been_shown_an_event_that_has_started(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        shown = {"web_0": NOW.at + 6}
        for what in (RecordKind.STARTED, RecordKind.SEEN):
            (record,) = await store.history(HistoryQuery(what=(what,)))
            assert (record.shown, record.answer) == (shown, "")
        (first,) = await store.history(HistoryQuery(what=(RecordKind.SEEN,)))
        assert (first.by, first.at) == ("web_2", NOW.at + 5)
        assert (await store.sightings()).shown == {"A": shown}
        others = await store.history(HistoryQuery(what=(RecordKind.RAISED,)))
        assert [record.shown for record in others] == [None]

    run(using(engine(), _shown_before_the_start))
    run(using(engine(), look))


def test_an_event_that_nobody_was_shown_has_started_unseen(engine: Reopen) -> None:
    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        await store.transact(doing("web", c.Enable()))
        await store.transact(doing("web", reboot("A")))
        await store.transact(doing("web", c.Approve(ids=("A",), by="ann"), LATER))
        (record,) = await store.history(HistoryQuery(what=(RecordKind.STARTED,)))
        assert record.shown == {}

    run(using(engine(), body))


def test_who_was_shown_an_event_by_a_clock_that_was_ahead_is_moved_back_with_it(
    engine: Reopen,
) -> None:
    async def body(store: Store) -> None:
        await _shown_before_the_start(store)
        accepted = ClockAccepted(before=NOW.at + 5, by="test")
        await store.transact(lambda _: Batch(NOW.at + 2, 0, puts=(accepted,)))
        assert (await store.sightings()).shown == {"A": {"web_0": NOW.at + 3}}

    run(using(engine(), body))


def test_an_event_that_stays_when_the_history_is_pruned_has_one_first_sighting(
    engine: Reopen,
) -> None:
    async def body(store: Store) -> None:
        await store.transact(doing("web", web("web_0", "web_1")))
        for id in ("A", "B"):
            await store.transact(doing("web", reboot(id)))
        ended, active = store.groups["web"].events
        sightings = tuple(seen(event, "web_0", NOW.at) for event in (ended, active))
        await store.save(PollSightings(seen={}, firsts=sightings))
        await store.transact(doing("web", c.Cancel(id="A", by="test")))
        await store.prune(LATEST.at, lambda _: False)
        again = tuple(seen(event, "web_1", NOW.at + 1) for event in (ended, active))
        await store.save(PollSightings(seen={}, firsts=again))
        records = await store.history(HistoryQuery(what=(RecordKind.SEEN,)))
        assert [(record.event, record.by) for record in records] == [
            ("B", "web_0"),
            ("A", "web_1"),
        ]

    run(using(engine(), body))


def test_an_id_is_found_by_its_beginning(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await store.transact(doing("web", web("web_0")))
        for id in ("AB1", "AB2", "AC1"):
            await store.transact(doing("web", reboot(id)))
        await store.transact(doing("web", c.Cancel(id="AB2", by="test")))
        assert sorted(await store.event_ids("AB", 10)) == ["AB1", "AB2"]
        assert await store.event_ids("AC", 10) == ["AC1"]
        assert await store.event_ids("B", 10) == []
        assert len(await store.event_ids("A", 2)) == 2

    run(using(engine(), look))


def test_pruning_forgets_what_was_over_and_nothing_else(engine: Reopen) -> None:
    async def live(store: Store) -> None:
        await a_history(store)  # A is over, B is not
        groups, registry = dict(store.groups), store.registry
        gone = await store.prune(LATEST.at, lambda _: False)
        assert gone == 5
        assert await everything(store) == ["raised B", "host-added rack-1"]
        assert await everything(store, machine="web_0") == []
        assert await store.ended_events(["A"]) == {}
        assert await store.past_events() == []
        assert dict(store.groups) == groups
        assert store.registry == registry

    async def look(store: Store) -> None:
        assert [event.id for event in store.groups["web"].events] == ["B"]
        assert await everything(store) == ["raised B", "host-added rack-1"]
        await store.transact(doing("web", c.Cancel(id="B", by="ann"), LATEST))
        assert (await store.history(HistoryQuery(newest_first=True)))[0].seq == 8

    run(using(engine(), live))
    run(using(engine(), look))


def test_an_event_whose_end_is_young_keeps_its_whole_story(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await a_history(store)
        await store.prune(LATER.at, lambda _: False)
        assert await everything(store, event="A") == ["raised A", "withdrawn A"]
        assert set(await store.ended_events(["A"])) == {"A"}

    run(using(engine(), look))


def test_pruning_keeps_what_is_still_referred_to(engine: Reopen) -> None:
    async def look(store: Store) -> None:
        await a_history(store)
        await store.prune(LATEST.at, lambda event: event.cause == "for A")
        assert await everything(store, event="A") == ["raised A", "withdrawn A"]
        assert [event.id for event in await store.events_by_cause("for A")] == ["A"]

    run(using(engine(), look))


def test_pruned_commits_leave_no_gap_and_the_newest_stays(engine: Reopen) -> None:
    async def live(store: Store) -> None:
        await a_history(store)
        await store.prune(LATEST.at, lambda _: False)
        # The third raised B, which is active: from there on all are kept.
        assert [commit.seq async for commit in store.commits(0)] == [3, 4, 5]
        await store.transact(doing("web", c.Cancel(id="B", by="ann"), LATEST))
        await store.prune(LATEST.at * 2, lambda _: False)
        assert [commit.seq async for commit in store.commits(0)] == [6]

    async def look(store: Store) -> None:
        assert store.seq == 6
        assert [commit.seq async for commit in store.commits(5)] == [6]
        assert await everything(store) == []
        await store.transact(doing("web", reboot("C"), LATEST))
        assert [commit.seq async for commit in store.commits(0)] == [6, 7]
        (record,) = await store.history(HistoryQuery())
        assert record.seq == 9  # never one that was given before

    run(using(engine(), live))
    run(using(engine(), look))

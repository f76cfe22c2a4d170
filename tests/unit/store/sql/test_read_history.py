"""The history in SQLite: written with the commits, and served by indexes."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forewarn.core import Change, Event, EventType, GroupKind, Machine, Status
from forewarn.core.changes import Enabled, EventMoved, GroupDefined, MachinePut
from forewarn.core.events import Approval, ApprovalKind, Attempt, Source
from forewarn.core.fleet import Host, Place, Policy
from forewarn.core.history import RecordKind
from forewarn.core.lifecycle import Move
from forewarn.core.registry import HostPut
from forewarn.store import Batch, Entry
from forewarn.store.port import HistoryQuery, PollSightings
from forewarn.store.sql import read
from forewarn.store.sql import store as sql_store
from forewarn.store.sqlite.engine import SqliteStore

AT = 1_800_000_000_000_000


def event(id: str, status: Status, **fields: Any) -> Event:
    return Event(
        id=id,
        group="web",
        type=EventType.REBOOT,
        source=Source.PLATFORM,
        resources=("web_0", "web_1"),
        domain=0,
        not_before=AT + 900_000_000,
        raised_at=AT + 1,
        by="operator",
        status=status,
        listed=True,
        **fields,
    )


def machine(name: str, host: str) -> MachinePut:
    return MachinePut(Machine(name=name, addresses=("10.0.0.1",), host=host))


APPROVED: dict[str, Any] = {"approved": Approval("web_1", AT + 2, ApprovalKind.GUEST)}
STARTED = {**APPROVED, "started_at": AT + 2, "attempt": Attempt(number=1, at=AT + 2)}
OVER = {**STARTED, "ended_at": AT + 3, "ending": "carried out", "carried_out": True}

COMMITS: list[tuple[int, tuple[Change, ...]]] = [
    (
        AT,
        (
            GroupDefined(GroupKind.SCALE_SET, Policy(), Place()),
            machine("web_0", "rack-1"),
            machine("web_1", "rack-1"),
            Enabled(seen=AT),
        ),
    ),
    (AT + 1, (EventMoved(Move.RAISE, event("A", Status.SCHEDULED), "operator"),)),
    (
        AT + 2,
        (
            EventMoved(Move.APPROVE, event("A", Status.SCHEDULED, **APPROVED), "web_1"),
            EventMoved(Move.START, event("A", Status.STARTED, **STARTED)),
        ),
    ),
    (
        AT + 3,
        (
            EventMoved(Move.FINISH, event("A", Status.FINISHED, **OVER)),
            machine("web_0", "rack-2"),
        ),
    ),
    (AT + 4, (EventMoved(Move.RAISE, event("B", Status.SCHEDULED), "operator"),)),
]


def test_the_history_is_written_with_the_commits_and_once(tmp_path: Path) -> None:
    async def write_commits() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        for at, changes in COMMITS:
            batch = Batch(at, entries=(Entry("web", changes),))
            await store.transact(lambda _, batch=batch: batch)  # type: ignore[misc]
        await store.save(PollSightings(seen={"web": AT}, served_until=AT + 5))
        await store.close()

    async def check() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        history = await store.history(HistoryQuery())
        assert [(r.what.value, r.by, r.event, r.machines) for r in history] == [
            ("group-changed", "", "", ()),
            ("machine-added", "", "", ("web_0",)),
            ("machine-added", "", "", ("web_1",)),
            ("enabled", "", "", ()),
            ("raised", "operator", "A", ("web_0", "web_1")),
            ("approved", "web_1", "A", ("web_0", "web_1")),
            ("started", "web_1", "A", ("web_0", "web_1")),
            ("finished", "driver", "A", ("web_0", "web_1")),
            ("machine-moved", "", "A", ("web_0",)),
            ("raised", "operator", "B", ("web_0", "web_1")),
        ]
        assert history[8].note.endswith("rack-1 to rack-2")
        of_machine = await store.history(HistoryQuery(machine="web_1", what=(RecordKind.RAISED,)))
        assert [record.event for record in of_machine] == ["A", "B"]
        # The state is what the commits lead to.
        assert [(e.id, e.status) for e in store.groups["web"].events] == [("B", Status.SCHEDULED)]
        assert [m.host for m in store.groups["web"].machines] == ["rack-2", "rack-1"]
        assert (await store.sightings()).served_until == AT + 5
        assert [commit.seq async for commit in store.commits(0)] == [1, 2, 3, 4, 5]
        assert store.registry.hosts == {}
        await store.close()

    asyncio.run(write_commits())
    asyncio.run(check())
    asyncio.run(check())  # opening it again writes nothing


def filled(path: Path, records: int) -> None:
    """Many records of many events of a thousand machines."""

    async def make() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(make())
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO history (at, what, who, group_name, event, note) VALUES (?,?,'x',?,?,'')",
            ((AT + n, "raised", f"g{n % 100}", f"E{n // 10}") for n in range(records)),
        )
        connection.executemany(
            "INSERT INTO event_machines VALUES (?, ?)",
            ((f"m{n % 100}", f"E{n}") for n in range(records // 10)),
        )
        connection.executemany(
            "INSERT INTO history (at, what, who, machine, host, note) VALUES (?,?,'x',?,?,'')",
            ((AT + n, "machine-moved", f"m{n}", f"h{n % 50}") for n in range(1_000)),
        )
    connection.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "state.db"
    filled(path, 10_000)
    return path


@pytest.mark.parametrize(
    "wanted",
    [
        HistoryQuery(machine="m7"),
        HistoryQuery(machine="m7", since=AT + 5, what=(RecordKind.RAISED,), newest_first=True),
        HistoryQuery(group="g7"),
        HistoryQuery(group="g7", since=AT + 500, before=(AT + 90_000, 90_000), newest_first=True),
        HistoryQuery(host="h7"),
        HistoryQuery(event="E77"),
        HistoryQuery(since=AT + 99_000),
        HistoryQuery(until=AT + 50_000, newest_first=True),
        HistoryQuery(after=(AT + 99_000, 99_000)),
    ],
)
def test_among_many_records_what_is_asked_for_is_found_by_an_index(
    large: Path, wanted: HistoryQuery
) -> None:
    made = sa.create_engine(f"sqlite:///{large}")
    statement = read.history_statement(wanted, "sqlite")
    text = statement.compile(made, compile_kwargs={"literal_binds": True})
    made.dispose()
    with contextlib.closing(sqlite3.connect(large)) as connection, connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    connection.close()
    assert plan
    assert [step for step in plan if step.startswith("SCAN")] == []


def test_among_many_records_those_of_a_machine_are_found(large: Path) -> None:
    async def look() -> None:
        store = SqliteStore(large)
        await store.open()
        found = await store.history(HistoryQuery(machine="m7", limit=1_000))
        await store.close()
        assert [record.event for record in found] == [
            "",
            *(f"E{n}" for n in range(7, 1_000, 100) for _ in range(10)),
        ]

    asyncio.run(look())


def test_pruning_goes_slice_by_slice_and_lets_commits_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that comes while much is being pruned does not wait for all of it."""

    filled(tmp_path / "state.db", 1_000)
    monkeypatch.setattr(sql_store, "PRUNE_SLICE", 10)

    async def body() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        host = HostPut(Host(name="rack-1"))
        async with asyncio.TaskGroup() as tasks:
            pruning = tasks.create_task(store.prune(AT + 10_000, lambda _: False))
            await store.transact(lambda _: Batch(AT + 20_000, 0, puts=(host,)))
            assert not pruning.done()
        assert pruning.result() == 1_000
        assert "rack-1" in store.registry.hosts
        await store.close()

    asyncio.run(body())

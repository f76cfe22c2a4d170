"""The history in SQLite: written into files of the first schema, and served by indexes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forewarn.core import Status
from forewarn.core.fleet import Host
from forewarn.core.history import What
from forewarn.core.registry import HostPut
from forewarn.store import Batch
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite import engine, read
from forewarn.store.sqlite.connect import migrate_to as migrate
from forewarn.store.sqlite.engine import SqliteStore

AT = 1_800_000_000_000_000


def old_event(id: str, status: str, **more: Any) -> dict[str, Any]:
    """An event as the first version wrote it."""
    return {
        "id": id,
        "group": "web",
        "type": "Reboot",
        "source": "Platform",
        "resources": ["web_0", "web_1"],
        "domain": 0,
        "not_before": AT + 900_000_000,
        "raised_at": AT + 1,
        "by": "operator",
        "status": status,
        "listed": True,
        **more,
    }


def moved(what: str, event: dict[str, Any], by: str = "") -> dict[str, Any]:
    return {"type": "event", "what": what, "event": event, "by": by}


APPROVED = {"approved": {"by": "web_1", "at": AT + 2}}
STARTED = {**APPROVED, "started_at": AT + 2, "attempt": {"number": 1, "at": AT + 2}}
OVER = {**STARTED, "ended_at": AT + 3, "ending": "carried out"}
MACHINE = {"update_domain": 0, "addresses": ["10.0.0.1"], "host": "rack-1"}

OLD_COMMITS: list[tuple[int, list[dict[str, Any]]]] = [
    (
        AT,
        [
            {"type": "group", "kind": "scale-set", "policy": {}, "place": {}},
            {"type": "machine", "machine": {"name": "web_0", **MACHINE}},
            {"type": "machine", "machine": {"name": "web_1", **MACHINE}},
            {"type": "enabled", "seen": AT},
        ],
    ),
    (AT + 1, [moved("raise", old_event("A", "Scheduled"), "operator")]),
    (
        AT + 2,
        [
            moved("approve", old_event("A", "Scheduled", **APPROVED), "web_1"),
            moved("start", old_event("A", "Started", **STARTED)),
        ],
    ),
    (
        AT + 3,
        [
            moved("finish", old_event("A", "Finished", **OVER)),
            {"type": "machine", "machine": {"name": "web_0", **MACHINE, "host": "rack-2"}},
        ],
    ),
    (AT + 4, [moved("raise", old_event("B", "Scheduled"), "operator")]),
]


def old_file(path: Path) -> None:
    made = sa.create_engine(f"sqlite:///{path}")
    with made.begin() as beginning:
        migrate(beginning, "0001")
    made.dispose()
    with sqlite3.connect(path) as connection:
        for seq, (at, items) in enumerate(OLD_COMMITS, 1):
            body = {"seq": seq, "at": at, "lost": 0, "entries": [{"group": "web", "items": items}]}
            connection.execute("INSERT INTO commits VALUES (?, ?, ?)", (seq, at, blob(body)))
        group = {"name": "web", "kind": "scale-set", "machines": [], "events": [], "enabled": True}
        group |= {"policy": {}, "place": {}, "incarnation": 5, "seen": AT, "enabling_until": None}
        connection.execute("INSERT INTO groups VALUES ('web', ?)", (blob(group),))
        for name, host in (("web_0", "rack-2"), ("web_1", "rack-1")):
            machine = {"name": name, **MACHINE, "host": host}
            connection.execute(
                "INSERT INTO machines (name, group_name, body) VALUES (?, 'web', ?)",
                (name, blob(machine)),
            )
        for event in (old_event("A", "Finished", **OVER), old_event("B", "Scheduled")):
            over = event["status"] == "Finished"
            connection.execute(
                "INSERT INTO events (id, group_name, over, cause, body)"
                " VALUES (?, 'web', ?, '', ?)",
                (event["id"], over, blob(event)),
            )
        connection.execute("INSERT INTO sightings VALUES ('web', ?)", (AT,))
        connection.execute("INSERT INTO service VALUES ('served_until', ?)", (AT + 5,))
    connection.close()


def blob(value: object) -> bytes:
    return json.dumps(value).encode()


def test_the_history_of_an_old_file_is_written_when_it_is_brought_up_to_date(
    tmp_path: Path,
) -> None:
    async def look() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        found = await store.history(HistoryQuery())
        assert [(r.what.value, r.by, r.event, r.machines) for r in found] == [
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
        assert found[8].note == "from rack-1 to rack-2"
        of_machine = await store.history(HistoryQuery(machine="web_1", what=(What.RAISED,)))
        assert [record.event for record in of_machine] == ["A", "B"]
        # And the state is what it was.
        assert [(e.id, e.status) for e in store.groups["web"].events] == [("B", Status.SCHEDULED)]
        assert [m.host for m in store.groups["web"].machines] == ["rack-2", "rack-1"]
        assert (await store.sightings()).served_until == AT + 5
        assert [commit.seq async for commit in store.commits(0)] == [1, 2, 3, 4, 5]
        assert store.registry.hosts == {}
        await store.close()

    old_file(tmp_path / "state.db")
    asyncio.run(look())
    asyncio.run(look())  # once: opening again writes nothing


def filled(path: Path, records: int) -> None:
    """Many records of many events of a thousand machines."""

    async def make() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(make())
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO history (at, what, who, group_name, event, note) VALUES (?,?,'x',?,?,'')",
            ((AT + n, "raised", f"g{n % 100}", f"E{n // 10}") for n in range(records)),
        )
        connection.executemany(
            "INSERT INTO event_machines VALUES (?, ?)",
            ((f"m{n % 1_000}", f"E{n}") for n in range(records // 10)),
        )
        connection.executemany(
            "INSERT INTO history (at, what, who, machine, host, note) VALUES (?,?,'x',?,?,'')",
            ((AT + n, "machine-moved", f"m{n}", f"h{n % 50}") for n in range(1_000)),
        )
    connection.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "state.db"
    filled(path, 100_000)
    return path


@pytest.mark.parametrize(
    "wanted",
    [
        HistoryQuery(machine="m7"),
        HistoryQuery(machine="m7", since=AT + 5, what=(What.RAISED,), newest_first=True),
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
    text = read.history_statement(wanted).compile(made, compile_kwargs={"literal_binds": True})
    made.dispose()
    with sqlite3.connect(large) as connection:
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
            *(f"E{n}" for n in range(7, 10_000, 1_000) for _ in range(10)),
        ]

    asyncio.run(look())


def test_pruning_goes_slice_by_slice_and_lets_commits_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that comes while much is being pruned does not wait for all of it."""

    filled(tmp_path / "state.db", 1_000)
    monkeypatch.setattr(engine, "PRUNE_SLICE", 10)

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

"""`forewarn move`: the whole state of a file is in the database afterwards, and goes on there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core.halts import Halt
from forewarn.core.history import Record, RecordKind
from forewarn.core.registry import HaltPut
from forewarn.store import Batch, Store
from forewarn.store.port import (
    Entry,
    HistoryQuery,
    Key,
    MachineSighting,
    Member,
    NotifyPosition,
    PollSightings,
    States,
)
from forewarn.store.postgres import lease
from forewarn.store.postgres.engine import PostgresStore
from forewarn.store.sql import schema as s
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import take_lock
from forewarn.testing import Service
from helpers import postgres
from helpers.state_files import define_group, state_with_groups
from helpers.token_api import FLEET


def run(*words: object) -> Result:
    clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
    return CliRunner().invoke(app, [str(word) for word in words], env=clean)


def refused(*words: object, code: int = 1) -> str:
    result = run(*words)
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    return str(line)


@pytest.fixture
def url() -> str:
    postgres.needed()
    return postgres.shared_server().new_state()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A state with rows in every table that a service fills, some of which have been removed."""
    path = tmp_path / "state.db"
    with Service(FLEET, state=path) as service:
        service.document("web_0")
        service.restart("web_0")
        service.clock.advance("1h")
        service.restart("web_1")
    asyncio.run(_add(path))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM history WHERE seq = (SELECT max(seq) FROM history)")
        connection.execute("UPDATE history SET note = 'a' || char(0) WHERE seq = 1")
    return path


async def _add(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()

    def keyed(_: States) -> Batch:
        return Batch(2, 0, key=Key("operator", "k1", "digest"))

    await store.transact(keyed)
    await store.save_answer(Key("operator", "k1", "digest"), 200, b"\0answer\xff")
    await store.save(
        PollSightings(
            seen={"web": 5},
            machines={"web_0": MachineSighting(polled=7, version="2020-07-01", polls=3)},
            served_until=9,
            lost=4,
            firsts=(Record(at=3, what=RecordKind.SEEN, by="web_0", group="web", event="none"),),
            used={"t1": 8},
        )
    )
    await store.save_notify_position(NotifyPosition(name="hook", origin="o", after=1))
    await store.close()


def rows_of_file(path: Path) -> Iterator[tuple[str, list[Any]]]:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        for table in s.metadata.sorted_tables:
            columns = ", ".join(column.name for column in table.columns)
            rows = connection.execute(f"SELECT {columns} FROM {table.name}").fetchall()
            yield table.name, [[_comparable(value) for value in row] for row in rows]


def rows_of_database(url: str) -> Iterator[tuple[str, list[Any]]]:
    with psycopg.connect(url) as connection:
        for table in s.metadata.sorted_tables:
            columns = ", ".join(column.name for column in table.columns)
            rows = connection.execute(f"SELECT {columns} FROM {table.name}").fetchall()
            yield table.name, [[_comparable(value) for value in row] for row in rows]


def _comparable(value: Any) -> str:
    if isinstance(value, bool):
        value = int(value)
    elif isinstance(value, str):
        value = value.replace("\0", "\ufffd")
    return repr(value)


async def answers(store: Store) -> list[Any]:
    """What a store answers, before and after it has gone on."""
    await store.open()
    if store.leadership is not None:
        await store.leadership.take()
    try:
        before = await _everything(store)
        await store.transact(define_group("new"))
        await store.transact(lambda _: Batch(3, 0, (Entry("new", ()),), key=_KEY))
        return [before, await _everything(store)]
    finally:
        await store.close()


_KEY = Key("operator", "k2", "digest")


async def _everything(store: Store) -> Any:
    history = await store.history(HistoryQuery(after_seq=0, limit=10_000))
    return (
        store.seq,
        dict(store.groups),
        store.registry,
        [(r.seq, r.at, r.what, r.by, r.event, r.note.replace("\0", "\ufffd")) for r in history],
        await store.past_events(),
        await store.keyed_request("operator", "k1"),
        await store.keyed_request("operator", "k2"),
        await store.sightings(),
        await store.notify_positions(),
        [commit async for commit in store.commits(0)],
    )


def test_every_row_is_moved_and_the_numbers_go_on(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "CLOCK_LIMIT", math.inf)  # its times are those of a virtual clock
    before = {name: sorted(rows) for name, rows in rows_of_file(file)}
    empty = {name for name, rows in before.items() if not rows}
    assert empty <= {"configurations", "rollouts", "tokens", "halts"}
    file.chmod(0o640)
    result = run("move", file, url, "--json")
    assert result.exit_code == 0, result.output
    moved = json.loads(result.stdout)
    assert moved["changed"] == 1  # the note with a NUL
    kept = Path(moved["kept"])
    assert kept == file.with_name("state.db.moved")
    assert {name: sorted(rows) for name, rows in rows_of_database(url)} == before
    assert {name: sorted(rows) for name, rows in rows_of_file(kept)} == before
    member = Member(name="c1", machine="m1", address="")
    there = asyncio.run(answers(PostgresStore(url, member)))
    here = asyncio.run(answers(SqliteStore(kept)))
    for left, right in zip(there, here, strict=True):
        for one, other in zip(left, right, strict=True):
            assert one == other
    numbers = {name: sorted(rows) for name, rows in rows_of_file(kept)}
    assert {name: sorted(rows) for name, rows in rows_of_database(url)} == numbers


def test_characters_that_postgresql_cannot_store_are_replaced_and_counted(
    tmp_path: Path, url: str
) -> None:
    """Wherever they are: what is in JSON today may be a text of the history tomorrow."""
    file = tmp_path / "state.db"
    notes = {"h1": "a\0b", "h2": r"C:\u0000"}  # of which the second has none
    halts = tuple(HaltPut(Halt(id=id, by="ann", at=1, note=note)) for id, note in notes.items())

    async def place(store: Store) -> None:
        await store.open()
        await store.transact(lambda _: Batch(2, 0, puts=halts))
        await store.close()

    async def stored(store: Store) -> dict[str, str]:
        await store.open()
        await store.close()
        return {halt.id: halt.note for halt in store.registry.halts.values()}

    asyncio.run(place(SqliteStore(file)))
    result = run("move", file, url)
    assert result.exit_code == 0, result.output
    assert "note: 2 values" in result.stderr  # the halt and the commit
    member = Member(name="c1", machine="m1", address="")
    assert asyncio.run(stored(PostgresStore(url, member))) == {**notes, "h1": "a\ufffdb"}
    file.with_name("state.db.moved").replace(file)
    assert run("move", file, url).exit_code == 0  # the same state, although it is not the same


def test_a_moved_file_is_refused_with_where_its_state_is(tmp_path: Path, url: str) -> None:
    file = state_with_groups(tmp_path / "state.db", "web")
    assert run("move", file, url).exit_code == 0
    line = refused("token", "create", "a", "--role", "admin", "--state", file)
    assert re.search(f"{re.escape(str(file))} .* postgresql://.* state.db.moved", line)
    assert "was moved to" in refused("move", file, url)
    assert "was moved to" in run("config", "check", "--state", file).output


def test_a_move_that_was_killed_before_the_file_was_renamed_is_finished(
    tmp_path: Path, url: str
) -> None:
    file = state_with_groups(tmp_path / "state.db", "web")
    assert run("move", file, url).exit_code == 0
    file.with_name("state.db.moved").replace(file)
    assert run("move", file, url).exit_code == 0
    assert "moved to" in file.read_text()


def test_a_state_that_cannot_be_moved_is_refused_and_stays(tmp_path: Path, url: str) -> None:
    file = state_with_groups(tmp_path / "state.db", "web")
    before = file.read_bytes()
    lock = take_lock(file)
    assert f"process {os.getpid()}" in refused("move", file, url)
    lock.close()
    assert "does not exist" in refused("move", tmp_path / "none", url)
    assert "pass postgresql://USER@HOST/DATABASE" in refused("move", file, "x.db", code=2)
    assert run("token", "create", "a", "--role", "admin", "--state", url).exit_code == 0
    assert re.search("state already, .* commit 1;", refused("move", file, url))
    assert file.read_bytes() == before


def test_a_database_with_a_leading_control_node_is_refused(tmp_path: Path, url: str) -> None:
    file = state_with_groups(tmp_path / "state.db", "web")

    async def body() -> str:
        store = PostgresStore(url, Member(name="c1", machine="m1", address=""))
        await store.open()
        await store.leadership.take()
        try:
            return await asyncio.to_thread(refused, "move", file, url)
        finally:
            await store.close()

    assert "control node 'c1'" in asyncio.run(body())

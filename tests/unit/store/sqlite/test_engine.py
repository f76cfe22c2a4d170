"""What is SQLite's alone: its file, its lock, its schema, and the ways a file can be wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from forewarn.core import GroupKind, Machine, World, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes
from forewarn.store import Batch, Entry, StoreFailed, StoreUnusable
from forewarn.store.port import States, Work
from forewarn.store.sql.schema import SCHEMA_VERSION, metadata
from forewarn.store.sqlite.connect import migrate_to as migrate
from forewarn.store.sqlite.engine import SqliteStore

NOW = World(at=1_800_000_000_000_000)


def defining(group: str, tag: str = "") -> Work:
    machine = Machine(name=f"{group}-0", tags={"note": tag})
    command = c.Define(kind=GroupKind.STANDALONE, machines=(machine,))

    def work(states: States) -> Batch:
        decision = decide(states[group], command, NOW)
        assert isinstance(decision, Changes)
        return Batch(NOW.at, 0, (Entry(group, decision.items),))

    return work


async def made(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.transact(defining("a"))
    await store.close()


async def opened(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


def schema_of(path: Path) -> list[tuple[str, str]]:
    """Return the tables and indexes and how they are defined, without the spaces at brackets and
    commas that differ if a column was added later."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            " AND name != 'alembic_version' ORDER BY name"
        ).fetchall()
    connection.close()
    spaces = re.compile(r"\s+(?=[,)])|(?<=\()\s+")
    return [(name, " ".join(spaces.sub("", str(sql)).split())) for name, sql in found]


def test_migrating_step_by_step_gives_the_same_schema_as_starting_fresh(tmp_path: Path) -> None:
    fresh, stepped = tmp_path / "fresh.db", tmp_path / "stepped.db"
    for path, make in (
        (fresh, metadata.create_all),
        (stepped, lambda connection: migrate(connection, SCHEMA_VERSION)),
    ):
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            make(connection)
        engine.dispose()
    assert schema_of(fresh) == schema_of(stepped)


def test_a_file_made_by_migrations_opens_without_any(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'state.db'}")
    with engine.begin() as connection:
        migrate(connection, SCHEMA_VERSION)
    engine.dispose()
    asyncio.run(made(tmp_path / "state.db"))


def test_opening_a_current_file_does_not_import_the_migration_machinery(tmp_path: Path) -> None:
    asyncio.run(made(tmp_path / "state.db"))
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from forewarn.store.sqlite.engine import SqliteStore\n"
        "store = SqliteStore(Path(sys.argv[1])); asyncio.run(store.open())\n"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "state.db")], check=True)


def test_a_second_process_is_refused_with_one_line(tmp_path: Path) -> None:
    async def twice() -> None:
        first = SqliteStore(tmp_path / "state.db")
        await first.open()
        try:
            with pytest.raises(StoreUnusable, match=f"process {os.getpid()}"):
                await opened(tmp_path / "state.db")
            await first.transact(defining("a"))  # and the first is not disturbed
        finally:
            await first.close()

    asyncio.run(twice())
    asyncio.run(opened(tmp_path / "state.db"))


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    asyncio.run(made(path))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreUnusable, match="schema 9999"):
        asyncio.run(opened(path))


@pytest.mark.parametrize(
    ("wreck", "lacks"),
    [("DROP TABLE history", "history."), ("ALTER TABLE events DROP COLUMN body", "events.body")],
)
def test_a_file_whose_tables_do_not_match_its_schema_is_refused(
    tmp_path: Path, wreck: str, lacks: str
) -> None:
    """Revisions were rewritten under their own number while they were being made."""
    path = tmp_path / "state.db"
    asyncio.run(made(path))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(wreck)
    connection.close()
    refusal = f"but has no column {lacks}.*Restore a backup of a release"
    with pytest.raises(StoreUnusable, match=refusal) as raised:
        asyncio.run(opened(path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("last", ["F", "-", "\ud7ff", "\U0010ffff", "a\U0010ffff\U0010ffff"])
def test_an_id_prefix_may_end_with_any_character(tmp_path: Path, last: str) -> None:
    async def asked() -> tuple[object, object]:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        try:
            return await store.event_ids(last, 10), await store.events_by_cause(last)
        finally:
            await store.close()

    assert asyncio.run(asked()) == ([], [])


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreUnusable, match="of another program"):
        asyncio.run(opened(path))
    assert schema_of(path) == [("theirs", "CREATE TABLE theirs (x)")]


@pytest.mark.parametrize("content", [b"not a database at all, but long enough" * 40, b"SQLite f"])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match=r"state\.db cannot be used"):
        asyncio.run(opened(path))
    assert path.read_bytes() == content


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnusable, match=r"state\.db cannot be used"):
        asyncio.run(opened(tmp_path / "file" / "state.db"))


def test_a_full_disk_refuses_the_commit_and_keeps_what_was_there(tmp_path: Path) -> None:
    async def fill() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        await store.transact(defining("a"))

        def limit() -> None:
            assert store._engine is not None
            with store._engine.connect() as connection:
                pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")

        await store._in_thread(limit)
        with pytest.raises(StoreFailed, match="full"):
            await store.transact(defining("b", tag="x" * 100_000))
        assert set(store.groups) == {"a"}
        assert [commit.seq async for commit in store.commits(0)] == [1]
        await store.transact(defining("c"))  # what still fits is still taken
        await store.close()

    asyncio.run(fill())

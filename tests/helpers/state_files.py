"""State files for tests: made, left by a killed service, and damaged in every known way."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from forewarn.core import GroupKind, Machine, World, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes
from forewarn.store import Batch, Entry
from forewarn.store.port import States, Work
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import companion
from helpers.forked_cli import run_script
from helpers.paths import TESTS

NOW = World(at=1_800_000_000_000_000)


COPIED = NOW.at + 5


def define_group(group: str) -> Work:
    command = c.Define(kind=GroupKind.STANDALONE, machines=(Machine(name=f"{group}-0"),))

    def work(states: States) -> Batch:
        decision = decide(states[group], command, NOW)
        assert isinstance(decision, Changes)
        return Batch(NOW.at, 0, (Entry(group, decision.items),))

    return work


def state_with_groups(path: Path, *groups: str) -> Path:
    """A state with these groups in it, one commit each."""
    for part, content in _made_with(*groups).items():
        file = companion(path, part)
        file.touch(0o600)
        file.write_bytes(content)
    return path


@functools.cache
def _made_with(*groups: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        path = write_groups(Path(directory) / "state.db", *groups)
        assert names(path.parent) == {"state.db", "state.db.lock"}
        return {part: companion(path, part).read_bytes() for part in ("", ".lock")}


def write_groups(path: Path, *groups: str) -> Path:
    async def write() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            for group in groups:
                await store.transact(define_group(group))
        finally:
            await store.close()

    asyncio.run(write())
    return path


def groups_in(path: Path) -> set[str]:
    async def look() -> set[str]:
        store = SqliteStore(path)
        await store.open()
        try:
            return set(store.groups)
        finally:
            await store.close()

    return asyncio.run(look())


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from helpers.state_files import define_group
from forewarn.store.sqlite.engine import SqliteStore

async def main():
    store = SqliteStore(Path(sys.argv[2]))
    await store.open()
    for group in sys.argv[3:]:
        await store.transact(define_group(group))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@functools.cache
def _left_by_a_kill(*groups: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        died = run_script(KILLED, TESTS, path, *groups)
        assert died.returncode == -signal.SIGKILL
        parts = ("", "-wal", "-shm", ".lock")
        return {part: companion(path, part).read_bytes() for part in parts}


def state_of_killed_service(path: Path, *groups: str) -> Path:
    """A state whose service was killed: what it has committed is still in its log."""
    for part, content in _left_by_a_kill(*groups).items():
        companion(path, part).write_bytes(content)
    assert companion(path, "-wal").stat().st_size > 0
    return path


def sql(*statements: str) -> Callable[[Path], None]:
    def wreck(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return wreck


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        page = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'history'"
        ).fetchone()[0]
    begins = (page - 1) * 4096
    data[begins : begins + 64] = bytes(byte ^ 0xFF for byte in data[begins : begins + 64])
    path.write_bytes(data)


FOREIGN = {
    "CREATE TRIGGER x AFTER INSERT ON commits BEGIN DELETE FROM keys; END": "contains trigger 'x'",
    "CREATE VIEW x AS SELECT * FROM tokens": "contains view 'x', which is not part of a state file",
    "CREATE TABLE x (y)": "contains table 'x'",
    "CREATE INDEX x ON commits (at)": "contains index 'x'",
}


WRECKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no database": (lambda path: path.write_bytes(b"not at all" * 100), "not an SQLite database"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "truncated": (lambda path: os.truncate(path, 20_000), "is damaged"),
    "a flipped page": (flip, "is damaged"),
    "something else": (
        sql("DROP TABLE commits"),
        "SQLite database of another program",
    ),
    "a newer schema": (
        sql("UPDATE alembic_version SET version_num = '0999'"),
        "schema 0999, which this version does not know",
    ),
    "a row that is none": (
        sql("UPDATE machines SET body = '{\"name\": 5}' WHERE name = 'a-0'"),
        "is damaged .a row of machines",
    ),
    "a commit that is none": (sql("UPDATE commits SET body = '{}'"), "is damaged .commit 1"),
    "a group the commits know nothing of": (
        sql("INSERT INTO groups VALUES ('c', CAST('{\"name\":\"c\"}' AS BLOB))"),
        "commits do not lead to the stored state",
    ),
    "a machine that got lost": (
        sql("DELETE FROM machines WHERE name = 'b-0'"),
        "commits do not lead to the stored state: b",
    ),
    "a table that got lost": (sql("DROP TABLE tokens"), "is damaged"),
    **{
        f"somebody's {part.split()[1].lower()}": (sql(part), says) for part, says in FOREIGN.items()
    },
}

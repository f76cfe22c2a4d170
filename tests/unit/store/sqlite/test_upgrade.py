"""State files of every schema there has been, made by the code of their time, in today's hands."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from forewarn.core import Event, Group, apply
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.history import Record, What
from forewarn.core.rollouts.model import Rollout
from forewarn.store import StoreUnusable
from forewarn.store.port import Commit, HistoryQuery, Keyed, PollSightings
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.schema import SCHEMA_VERSION
from forewarn.testing import Service

STORED = Path(__file__).parent / "schemas"
SCHEMAS = [f"{n:04}" for n in range(1, int(SCHEMA_VERSION) + 1)]
OLDER = SCHEMAS[:-1]

T = TypeVar("T")


class Then(msgspec.Struct):
    """What was so, in the words of the code of that time."""

    schema: str
    fleet: str
    seq: int
    groups: dict[str, Group]
    past: list[Event]
    sightings: PollSightings
    documents: dict[str, dict[str, str]]
    hosts: dict[str, Host] = {}
    rollouts: dict[str, Rollout] = {}
    tokens: dict[str, Token] = {}
    history: list[Record] = []


class Now(msgspec.Struct):
    """The same, as the code of today finds it."""

    groups: dict[str, Group]
    hosts: dict[str, Host]
    rollouts: dict[str, Rollout]
    tokens: dict[str, Token]
    seq: int
    past: Sequence[Event]
    sightings: PollSightings
    history: Sequence[Record]
    commits: list[Commit]


def unpacked(schema: str, directory: Path) -> Path:
    path = directory / "state.db"
    path.write_bytes(gzip.decompress((STORED / f"{schema}.db.gz").read_bytes()))
    return path


def then(schema: str) -> Then:
    text = gzip.decompress((STORED / f"{schema}.json.gz").read_bytes())
    return msgspec.json.decode(text, type=Then)


def found(path: Path, *, migrate: bool = True) -> Now:
    async def look() -> Now:
        store = SqliteStore(path, migrate=migrate)
        await store.open()
        try:
            return Now(
                groups=dict(store.groups),
                hosts=dict(store.registry.hosts),
                rollouts=dict(store.registry.rollouts),
                tokens=dict(store.registry.tokens),
                seq=store.seq,
                past=await store.past(limit=1_000),
                sightings=await store.sightings(),
                history=await store.history(HistoryQuery(limit=100_000)),
                commits=[commit async for commit in store.commits(0)],
            )
        finally:
            await store.close()

    return asyncio.run(look())


def rows(path: Path) -> dict[str, list[Any]]:
    """All of a file, but for the mark of a copy."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as db:
        tables = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        whole = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(tables)}
    whole["service"] = [row for row in whole["service"] if row[0] != "copied"]
    return whole


def test_every_schema_has_a_stored_database() -> None:
    stored = sorted(path.name.partition(".")[0] for path in STORED.glob("*.db.gz"))
    assert stored == SCHEMAS, "make one: see tests/unit/store/sqlite/schemas/README.md"
    assert [then(schema).schema for schema in SCHEMAS] == SCHEMAS


@pytest.mark.parametrize("schema", SCHEMAS)
def test_all_that_was_so_is_so(tmp_path: Path, schema: str) -> None:
    was, now = then(schema), found(unpacked(schema, tmp_path))
    assert now.seq == was.seq
    assert now.groups == was.groups
    assert any(event.status.value == "Started" for g in now.groups.values() for event in g.events)
    assert list(now.past) == was.past
    assert (now.hosts, now.rollouts, now.tokens) == (was.hosts, was.rollouts, was.tokens)
    assert now.sightings == was.sightings
    if was.history:
        assert list(now.history) == was.history


@pytest.mark.parametrize("schema", SCHEMAS)
def test_replaying_the_commits_gives_the_state(tmp_path: Path, schema: str) -> None:
    now = found(unpacked(schema, tmp_path))
    assert [commit.seq for commit in now.commits] == list(range(1, now.seq + 1))
    groups: dict[str, Group] = {}
    for commit in now.commits:
        for entry in commit.entries:
            before = groups.get(entry.group) or Group(name=entry.group)
            groups[entry.group] = apply(before, entry.items)
    assert groups == now.groups


@pytest.mark.parametrize("schema", SCHEMAS)
def test_guests_are_shown_the_same_bytes(tmp_path: Path, schema: str) -> None:
    was = then(schema)
    start = was.sightings.served_until or 0
    assert was.documents
    with Service(was.fleet, state=unpacked(schema, tmp_path), start=start) as service:
        for machine, versions in was.documents.items():
            for version, body in versions.items():
                assert service.get(machine, version).body.decode() == body, (machine, version)


def test_the_history_of_what_was_before_there_was_one_is_written(tmp_path: Path) -> None:
    now = found(unpacked("0001", tmp_path))
    (reboot,) = [event for event in now.past if event.type.value == "Reboot"]
    told = [(r.what, r.by) for r in now.history if r.event == reboot.id]
    assert told == [
        (What.RAISED, "test"),
        (What.APPROVED, "web_1"),
        (What.STARTED, "web_1"),
        (What.ANSWERED, "driver"),
        (What.ATTEMPTED, ""),
        (What.FINISHED, "driver"),
    ]


def test_requests_with_a_key_are_still_known(tmp_path: Path) -> None:
    async def look() -> Keyed | None:
        store = SqliteStore(unpacked("0003", tmp_path))
        await store.open()
        try:
            return await store.keyed("ci", "deploy-1")
        finally:
            await store.close()

    kept = asyncio.run(look())
    assert kept is not None
    assert (kept.status, kept.answer) == (201, b'{"event":"A"}')


@pytest.mark.parametrize("schema", OLDER)
def test_an_older_schema_is_refused_and_left_alone_unless_told_to_migrate(
    tmp_path: Path, schema: str
) -> None:
    path = unpacked(schema, tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable) as refusal:
        found(path, migrate=False)
    said = str(refusal.value)
    assert f"has schema {schema}, this version has {SCHEMA_VERSION}" in said
    assert "forewarn backup" in said
    assert "forewarn upgrade" in said
    assert "\n" not in said
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.parametrize("schema", OLDER)
def test_the_file_as_it_was_is_kept_beside(tmp_path: Path, schema: str) -> None:
    path = unpacked(schema, tmp_path)
    before = rows(path)
    found(path)
    kept = tmp_path / f"state.db.schema-{schema}"
    assert rows(kept) == before
    assert kept.stat().st_mode & 0o777 == 0o600
    found(path, migrate=False)  # it is up to date now
    # And it can be gone back to, and forward again; nothing that is kept is overwritten.
    path.unlink()
    path.write_bytes(kept.read_bytes())
    found(path)
    again = tmp_path / f"state.db.schema-{schema}-2"
    assert rows(again) == rows(kept) == before


DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from alembic import op
from forewarn.store.sqlite.engine import SqliteStore

calls = 0
def dying(what):
    def call(*args, **more):
        global calls
        calls += 1
        if calls > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return what(*args, **more)
    return call

op.create_table, op.create_index = dying(op.create_table), dying(op.create_index)
asyncio.run(SqliteStore(Path(sys.argv[1])).open())
"""


@pytest.mark.parametrize("after", [3, 10])
def test_a_death_in_the_middle_of_an_upgrade_leaves_what_was(tmp_path: Path, after: int) -> None:
    """Between the schemas there are four tables, six indexes, then three tables and an index."""
    path = unpacked("0001", tmp_path)
    before = rows(path)
    died = subprocess.run([sys.executable, "-c", DYING, str(path), str(after)], timeout=60)
    assert died.returncode == -signal.SIGKILL
    with pytest.raises(StoreUnusable, match="has schema 0001"):
        found(path, migrate=False)
    assert found(path).groups == then("0001").groups
    assert rows(tmp_path / "state.db.schema-0001") == before
    assert rows(tmp_path / "state.db.schema-0001-2") == before
    assert not list(tmp_path.glob("*unfinished*"))


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpacked("0002", tmp_path)
    before = rows(path)
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise OSError("no space left on device")

        broken.setattr("alembic.op.create_index", fail)
        with pytest.raises(StoreUnusable, match="no space left"):
            found(path)
    assert rows(path) == before
    assert found(path).groups == then("0002").groups


def test_a_newer_schema_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    path = unpacked(SCHEMA_VERSION, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    lock = tmp_path / "state.db.lock"
    lock.write_text("process 4711")  # of whoever had it last
    with pytest.raises(StoreUnusable, match="schema 9999, which this version does not know"):
        found(path)
    assert path.read_bytes() == before
    assert lock.read_text() == "process 4711"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state.db", "state.db.lock"]

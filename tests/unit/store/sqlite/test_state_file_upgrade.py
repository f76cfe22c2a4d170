"""State files of every schema, opened by this version and upgraded by the next one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.control.views import feed
from forewarn.core import Event, Group, apply
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.halts import Halt
from forewarn.core.history import HistoryWriter, Record, RecordKind
from forewarn.core.rollouts.model import Rollout
from forewarn.store import StoreUnusable
from forewarn.store.port import Commit, HistoryQuery, KeyedRequest, PollSightings
from forewarn.store.sql.schema import SCHEMA_VERSION
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.state_file import SqliteFile
from forewarn.support.instants import to_datetime
from forewarn.testing import Service
from helpers.forked_cli import run_script
from helpers.next_version import (
    BETWEEN,
    NEXT,
    OLDER,
    RELEASED,
    changed_groups,
    expected_contents,
    write_state,
)
from helpers.paths import STORED_SCHEMAS, TESTS


class Expected(msgspec.Struct):
    """What the code of that time read from the file."""

    schema: str
    fleet: str
    seq: int
    groups: dict[str, Group]
    past: list[Event]
    sightings: PollSightings
    documents: dict[str, dict[str, str]]
    hosts: dict[str, Host]
    rollouts: dict[str, Rollout]
    tokens: dict[str, Token]
    history: list[Record]
    halts: dict[str, Halt] = {}  # since schema 0002


class Contents(msgspec.Struct):
    """What a store reads from the file."""

    groups: dict[str, Group]
    hosts: dict[str, Host]
    rollouts: dict[str, Rollout]
    tokens: dict[str, Token]
    halts: dict[str, Halt]
    seq: int
    past: Sequence[Event]
    sightings: PollSightings
    history: Sequence[Record]
    commits: list[Commit]


@pytest.fixture(params=["this version", "next version"])
def version(request: pytest.FixtureRequest) -> str:
    """Run a test with each version."""
    if request.param == "next version":
        request.getfixturevalue("next_version")
    return str(request.param)


READ: dict[tuple[str, str], Contents] = {}


@pytest.fixture
def contents(version: str, schema: str, tmp_path: Path) -> Contents:
    """What a version reads from a file of a schema: read once, for several tests."""
    if (version, schema) not in READ:
        READ[version, schema] = read(stored(schema, tmp_path))
    return READ[version, schema]


def stored(schema: str, directory: Path) -> Path:
    return write_state(schema, directory / "state.db")


def expected(schema: str) -> Expected:
    contents = msgspec.json.decode(expected_contents(schema), type=Expected)
    if schema == "0001":  # it did not store which incarnations had been shown before
        sql = msgspec.structs.replace(contents.groups["sql"], shown=4)
        contents.groups["sql"] = sql
    return contents


def read(path: Path, *, migrate: bool = True) -> Contents:
    async def read_store() -> Contents:
        store = SqliteStore(path, migrate=migrate)
        await store.open()
        try:
            return Contents(
                groups=dict(store.groups),
                hosts=dict(store.registry.hosts),
                rollouts=dict(store.registry.rollouts),
                tokens=dict(store.registry.tokens),
                halts=dict(store.registry.halts),
                seq=store.seq,
                past=await store.past_events(limit=1_000),
                sightings=await store.sightings(),
                history=await store.history(HistoryQuery(limit=100_000)),
                commits=[commit async for commit in store.commits(0)],
            )
        finally:
            await store.close()

    return asyncio.run(read_store())


def rows(path: Path) -> dict[str, list[Any]]:
    """All rows of a file by table, except for the mark of a copy."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(names)}
    tables["service"] = [row for row in tables["service"] if row[0] != "copied"]
    return tables


def test_every_schema_has_a_stored_database() -> None:
    files = sorted(path.name.partition(".")[0] for path in STORED_SCHEMAS.glob("*.db.gz"))
    assert files == list(RELEASED), "make one: see tests/unit/store/sqlite/schemas/README.md"
    assert [expected(schema).schema for schema in RELEASED] == list(RELEASED)
    assert RELEASED[-1] == SCHEMA_VERSION


@pytest.mark.parametrize("schema", RELEASED)
def test_everything_is_as_it_was_stored(contents: Contents, schema: str) -> None:
    before, after = expected(schema), contents
    assert after.seq == before.seq
    assert after.groups == before.groups
    events = [event for group in after.groups.values() for event in group.events]
    assert any(event.status.value == "Started" for event in events)
    assert list(after.past) == before.past
    assert (after.hosts, after.rollouts, after.tokens, after.halts) == (
        before.hosts,
        before.rollouts,
        before.tokens,
        before.halts,
    )
    assert after.hosts
    assert after.rollouts
    assert after.tokens
    assert after.halts or schema == "0001"
    assert after.sightings == before.sightings
    assert unshown(after.history) == unshown(before.history)


def unshown(history: Sequence[Record]) -> list[Record]:
    """Return records without who was shown an event, of which older versions have none."""
    return [msgspec.structs.replace(record, shown=None) for record in history]


@pytest.mark.parametrize("schema", RELEASED)
def test_replaying_the_commits_gives_the_state(contents: Contents) -> None:
    assert [commit.seq for commit in contents.commits] == list(range(1, contents.seq + 1))
    groups: dict[str, Group] = {}
    for commit in contents.commits:
        for entry in commit.entries:
            before = groups.get(entry.group) or Group(name=entry.group)
            groups[entry.group] = apply(before, entry.items)
    assert groups == contents.groups


@pytest.mark.parametrize("schema", RELEASED)
def test_the_feed_of_a_stored_file_is_its_history(contents: Contents) -> None:
    """Commit by commit, without the states before: from what was stored with each."""
    replayed = [
        change.what for commit in contents.commits for change in feed.commit(commit).changes
    ]
    in_history = [record.what.value for record in contents.history]
    assert replayed == [what for what in in_history if what != RecordKind.SEEN.value]


def test_what_the_current_schema_has_stored_is_what_this_code_would_store(tmp_path: Path) -> None:
    """A field that was renamed since the file was made would be lost without a word."""
    path = stored(SCHEMA_VERSION, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        bodies = dict(db.execute("SELECT seq, body FROM commits"))
    for commit in read(path).commits:
        again = msgspec.json.decode(msgspec.json.encode(commit))
        assert msgspec.json.decode(bodies[commit.seq]) == again


@pytest.mark.parametrize("schema", RELEASED)
def test_replaying_the_commits_gives_the_history(contents: Contents) -> None:
    """Except for who saw an event first, which is no commit."""
    writer = HistoryWriter({}, {})
    replayed = [
        record
        for commit in contents.commits
        for record in writer.records(
            commit.at, [(entry.group, entry.items) for entry in commit.entries], commit.puts
        )
    ]
    in_history = [
        msgspec.structs.replace(record, seq=0)
        for record in unshown(contents.history)
        if record.what is not RecordKind.SEEN
    ]
    assert replayed == in_history


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("schema", RELEASED)
def test_guests_are_shown_the_same_bytes(tmp_path: Path, schema: str) -> None:
    before = expected(schema)
    start = before.sightings.served_until or 0
    assert before.documents
    with Service(before.fleet, state=stored(schema, tmp_path), start=to_datetime(start)) as service:
        for machine, versions in before.documents.items():
            for version, body in versions.items():
                assert service.get(machine, version).body.decode() == body, (machine, version)


@pytest.mark.parametrize("schema", [SCHEMA_VERSION])
def test_the_history_of_an_event_is_complete(contents: Contents) -> None:
    (reboot,) = [
        event
        for event in contents.past
        if event.type.value == "Reboot" and event.resources == ("web_0",)
    ]
    history = [(r.what, r.by) for r in contents.history if r.event == reboot.id]
    assert [record for record in history if record[0] is not RecordKind.SEEN] == [
        (RecordKind.RAISED, "test"),
        (RecordKind.APPROVED, "web_1"),
        (RecordKind.STARTED, "web_1"),
        (RecordKind.ANSWERED, "driver"),
        (RecordKind.ATTEMPTED, ""),
        (RecordKind.FINISHED, "driver"),
    ]


@pytest.mark.usefixtures("version")
def test_requests_with_a_key_are_still_known(tmp_path: Path) -> None:
    async def read_key() -> KeyedRequest | None:
        store = SqliteStore(stored(SCHEMA_VERSION, tmp_path))
        await store.open()
        try:
            return await store.keyed_request("ci", "deploy-1")
        finally:
            await store.close()

    keyed = asyncio.run(read_key())
    assert keyed is not None
    assert (keyed.status, keyed.answer) == (201, b'{"event":"A"}')


def test_an_older_file_can_be_copied_restored_and_upgraded(tmp_path: Path) -> None:
    """As the refusal to start with it advises; the copies are verified."""
    state, backup = stored("0001", tmp_path), tmp_path / "backup.db"
    assert SqliteFile(state).copy(backup, 0).schema == "0001"
    restored = SqliteFile(state).restore(backup, 0, force=True)
    assert restored.outdated
    result = SqliteFile(state).upgrade()
    assert (result.before, result.after) == ("0001", SCHEMA_VERSION)
    assert SqliteFile(state).copy(tmp_path / "again.db", 0).schema == SCHEMA_VERSION
    assert read(state, migrate=False).groups == expected("0001").groups


@pytest.mark.parametrize("missing", ["", "halts", "machine_sightings"])
def test_a_file_that_has_some_of_the_second_schema_already_is_completed(
    tmp_path: Path, missing: str
) -> None:
    """Builds between 0001 and 0002 wrote such files."""
    path = stored("0002", tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE alembic_version SET version_num = '0001'")
        if missing:
            db.execute(f"DROP TABLE {missing}")
    with pytest.raises(StoreUnusable, match="then upgrade it"):
        read(path, migrate=False)
    contents, before = read(path), expected("0002")
    assert contents.groups == before.groups
    assert contents.halts == ({} if missing == "halts" else before.halts)
    assert unshown(contents.history) == unshown(before.history)


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("schema", OLDER)
def test_what_a_revision_derives_from_the_commits_is_written_once(
    tmp_path: Path, schema: str
) -> None:
    path = stored(schema, tmp_path)
    read(path)
    derived, from_commits = changed_groups(path)
    assert derived == from_commits
    assert derived
    read(path)
    assert changed_groups(path)[0] == derived


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("schema", OLDER)
def test_an_older_schema_is_refused_and_left_alone_unless_migration_is_allowed(
    tmp_path: Path, schema: str
) -> None:
    path = stored(schema, tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreUnusable) as refusal:
        read(path, migrate=False)
    message = str(refusal.value)
    assert f"has schema {schema}, this version has {NEXT}" in message
    assert "forewarn backup" in message
    assert "forewarn upgrade" in message
    assert "\n" not in message
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("schema", OLDER)
def test_the_file_as_it_was_is_kept_beside(tmp_path: Path, schema: str) -> None:
    path = stored(schema, tmp_path)
    before = rows(path)
    read(path)
    kept = tmp_path / f"state.db.schema-{schema}"
    assert rows(kept) == before
    assert kept.stat().st_mode & 0o777 == 0o600
    read(path, migrate=False)  # it is up to date now
    # The kept file can be used again and upgraded again; no kept file is overwritten.
    path.unlink()
    path.write_bytes(kept.read_bytes())
    read(path)
    kept_again = tmp_path / f"state.db.schema-{schema}-2"
    assert rows(kept_again) == rows(kept) == before


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from alembic import op
sys.path.insert(0, sys.argv[4])
from forewarn.store.sqlite.engine import SqliteStore
from helpers import next_version

next_version.install(setattr, Path(sys.argv[2]))
calls = 0
def counted(operation):
    def call(*args, **options):
        global calls
        calls += 1
        if calls > int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return operation(*args, **options)
    return call

op.create_table, op.create_index = counted(op.create_table), counted(op.create_index)
asyncio.run(SqliteStore(Path(sys.argv[1])).open())
"""


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("after", [1, 3])
def test_a_death_in_the_middle_of_an_upgrade_leaves_what_was(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, after: int
) -> None:
    """Each of the two revisions makes a table, then an index."""
    path = stored(RELEASED[0], tmp_path)
    before = rows(path)
    migrations = tmp_path_factory.mktemp("migrations")
    killed = run_script(KILLED, path, migrations, str(after), TESTS)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(StoreUnusable, match=f"has schema {RELEASED[0]}"):
        read(path, migrate=False)
    assert read(path).groups == expected(RELEASED[0]).groups
    assert rows(tmp_path / f"state.db.schema-{RELEASED[0]}") == before
    assert rows(tmp_path / f"state.db.schema-{RELEASED[0]}-2") == before
    assert not list(tmp_path.glob("*unfinished*"))


@pytest.mark.usefixtures("next_version")
def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(BETWEEN, tmp_path)
    before = rows(path)
    with monkeypatch.context() as broken:

        def fail(*_: object, **__: object) -> None:
            raise OSError("no space left on device")

        broken.setattr("alembic.op.create_index", fail)
        with pytest.raises(StoreUnusable, match="no space left"):
            read(path)
    assert rows(path) == before
    assert read(path).groups == expected(BETWEEN).groups


@pytest.mark.usefixtures("next_version")
def test_this_version_refuses_a_file_that_the_next_one_has_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(SCHEMA_VERSION, tmp_path)
    read(path)
    monkeypatch.undo()
    before = rows(path)
    with pytest.raises(StoreUnusable, match=f"schema {NEXT},"):
        read(path)
    assert rows(path) == before


def test_a_newer_schema_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    path = stored(SCHEMA_VERSION, tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    lock = tmp_path / "state.db.lock"
    lock.write_text("process 4711")  # of the process that had it last
    with pytest.raises(StoreUnusable, match="schema 9999,"):
        read(path)
    assert path.read_bytes() == before
    assert lock.read_text() == "process 4711"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state.db", "state.db.lock"]

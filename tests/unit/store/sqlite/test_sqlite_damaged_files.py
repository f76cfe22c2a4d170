"""A state file that is not as it should be, at the start and while it is in use: one clear line,
nothing overwritten, and nothing acknowledged that is not there afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forewarn.core import World
from forewarn.store import MemoryStore, OutcomeUnknown, StoreFailed, StoreUnusable
from forewarn.store.port import HistoryQuery, PollSightings, StoreUnreadable
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import companion
from helpers.forked_cli import run_script
from helpers.state_files import (
    WRECKS,
    define_group,
    groups_in,
    names,
    sql,
    state_of_killed_service,
    state_with_groups,
)

NOW = World(at=1_800_000_000_000_000)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


def everything(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Of every file its rights and its bytes."""
    return {
        str(file.relative_to(directory)): (
            file.stat().st_mode,
            file.read_bytes() if file.is_file() else b"",
        )
        for file in sorted(directory.rglob("*"))
    }


def refused(path: Path) -> str:
    """What is said to whoever starts a service on it, having changed nothing."""
    before = everything(path.parent)
    with pytest.raises(StoreUnusable) as output:
        run(_open(path))
    assert everything(path.parent) == before
    line = str(output.value)
    assert "\n" not in line
    assert path.name in line
    return line


async def _open(path: Path) -> None:
    await (await opened(path)).close()


# At the start.

AT_THE_START = {
    how: wreck
    for how, wreck in WRECKS.items()
    # What only a look at every row finds is looked for in copies.
    if how not in ("a group the commits know nothing of", "a machine that got lost")
    and how not in ("a commit that is none", "a row that is none", "a table that got lost")
}


@pytest.mark.parametrize("how", AT_THE_START)
def test_a_wreck_is_refused_and_left_alone(tmp_path: Path, how: str) -> None:
    wreck, says = AT_THE_START[how]
    path = state_with_groups(tmp_path / "state.db", *(f"g{n}" for n in range(30)))
    wreck(path)
    assert says.partition(".")[0] in refused(path)


def test_a_state_with_a_row_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = state_with_groups(tmp_path / "state.db", "a")
    sql("UPDATE machines SET body = '{}'")(path)
    with pytest.raises(StoreUnusable, match=r"cannot be used .*Object missing"):
        run(_open(path))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    assert "is a directory" in refused(tmp_path / "state.db")


def test_what_a_killed_service_left_is_taken_up(tmp_path: Path) -> None:
    path = state_of_killed_service(tmp_path / "state.db", "a", "b")
    assert groups_in(path) == {"a", "b"}


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 5, 9, 17, 27], ids=["magic", "form", "page", "salt", "sum"])
def test_a_log_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, at: int) -> None:
    """SQLite would go on without a word, and without the commits in it."""
    path = state_of_killed_service(tmp_path / "state.db", "a", "b")
    log = companion(path, "-wal")
    damage(log, at)
    assert "state.db-wal is damaged" in refused(path)
    log.rename(tmp_path / "moved-away")  # as it says
    assert groups_in(path) < {"a", "b"}


def test_a_log_that_is_damaged_in_its_middle_is_not_read_half(tmp_path: Path) -> None:
    """SQLite would take the damage for the end."""
    groups = [f"g{n}" for n in range(8)]
    path = state_of_killed_service(tmp_path / "state.db", *groups)
    log = companion(path, "-wal")
    whole = log.read_bytes()
    for at in (100, len(whole) // 3, len(whole) // 2):
        damage(log, at)
        with pytest.raises(StoreUnusable, match="wal is damaged"):
            run(_open(path))
        log.write_bytes(whole)
    assert groups_in(path) == set(groups)


def test_a_log_that_a_crash_has_cut_off_is_read_to_there(tmp_path: Path) -> None:
    path = state_of_killed_service(tmp_path / "state.db", "a", "b")
    log = companion(path, "-wal")
    os.truncate(log, log.stat().st_size - 100)
    assert groups_in(path) == {"a"}


def test_a_log_without_its_file_is_not_thrown_away(tmp_path: Path) -> None:
    path = state_of_killed_service(tmp_path / "state.db", "a")
    path.rename(tmp_path / "elsewhere.db")
    assert "its log state.db-wal" in refused(path)
    (tmp_path / "elsewhere.db").rename(path)  # as it says
    assert groups_in(path) == {"a"}


def as_nobody(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process that is not root's, whoever runs the tests."""
    drop = "import os\nif os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
    imports = "import asyncio, sys\nfrom pathlib import Path\n"
    imports += "from forewarn.store import StoreUnusable\n"
    imports += "from forewarn.store.sqlite.engine import SqliteStore\n"
    imports += "import alembic.runtime.environment, alembic.script\n"
    return run_script(imports + drop + code, *arguments)


OPENING = """
for path in sys.argv[1:]:
    try:
        asyncio.run(SqliteStore(Path(path)).open())
    except StoreUnusable as error:
        print(error)
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that others may look at, other than those that pytest gives."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


RIGHTS = [  # of the file and of its directory
    (0o444, 0o777, "state.db cannot be read and written by user"),
    (0o000, 0o777, "state.db cannot be read and written by user"),
    (0o666, 0o555, "cannot be written by user"),
]


def test_missing_file_permissions_are_named(shared: Path) -> None:
    homes = []
    for n, (file, directory, _) in enumerate(RIGHTS):
        home = shared / f"{n}"
        home.mkdir()
        state_with_groups(home / "state.db", "a").chmod(file)
        home.chmod(directory)
        homes.append(home)
    before = [names(home) for home in homes]
    try:
        done = as_nobody(OPENING, *(str(home / "state.db") for home in homes))
        assert done.stderr == ""
        lines = done.stdout.splitlines()
        for line, home, (_, _, says) in zip(lines, homes, RIGHTS, strict=True):
            assert says in line
            assert str(home) in line
        assert [names(home) for home in homes] == before
    finally:
        for home in homes:
            home.chmod(0o755)


def test_a_state_that_cannot_be_created_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("forewarn.store.sqlite.copy.sync", full)
    with pytest.raises(StoreUnusable, match="disk full"):
        run(_open(tmp_path / "state.db"))
    assert names(tmp_path) == {"state.db.lock"}
    monkeypatch.undo()
    run(_open(tmp_path / "state.db"))


# While it is in use.


def troubled(
    path: Path, body: Callable[[SqliteStore], Coroutine[Any, Any, None]]
) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        store = await opened(path)
        try:
            await store.transact(define_group("a"))
            assert store.problem() == ""
            await body(store)
        finally:
            await store.close()

    return work


def test_a_file_that_was_removed_takes_no_commits_until_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def body(store: SqliteStore) -> None:
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreFailed, match="removed or replaced"):
            await store.transact(define_group("b"))
        assert "removed or replaced" in store.problem()
        with pytest.raises(StoreFailed, match="removed or replaced"):
            await store.save(PollSightings(seen={"a": 1}))
        assert set(store.groups) == {"a"}  # what is in memory is still shown
        (tmp_path / "elsewhere.db").rename(path)
        await store.transact(define_group("c"))
        assert store.problem() == ""

    run(troubled(path, body)())
    assert groups_in(path) == {"a", "c"}


def test_a_file_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    path, other = tmp_path / "state.db", state_with_groups(tmp_path / "other.db", "x")

    async def body(store: SqliteStore) -> None:
        path.rename(tmp_path / "elsewhere.db")
        path.write_bytes(other.read_bytes())
        with pytest.raises(StoreFailed, match="removed or replaced"):
            await store.transact(define_group("b"))

    run(troubled(path, body)())
    assert path.read_bytes() == other.read_bytes()


def crashed(path: Path, home: Path) -> Path:
    """The state as kill -9 would leave it at this moment: what the names lead to. Another process
    reads it, since SQLite's locks are lost if this one closes a descriptor of the file."""
    subprocess.run(["cp", "-r", str(path.parent), str(home)], check=True, timeout=60)
    return home / path.name


async def found_in(path: Path) -> set[str]:
    store = await opened(path)
    try:
        return set(store.groups)
    finally:
        await store.close()


def removed(*endings: str) -> Callable[[Path], None]:
    def lose(path: Path) -> None:
        for ending in endings:
            companion(path, ending).unlink()

    return lose


def replaced_by_an_older_one(path: Path) -> None:
    log = companion(path, "-wal")
    older = log.read_bytes()[:-1000]
    log.unlink()
    log.write_bytes(older)


LOSSES = {
    "the log is removed": removed("-wal"),
    "the index is removed": removed("-shm"),
    "both are removed": removed("-wal", "-shm"),
    "the log is replaced": replaced_by_an_older_one,
}


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "with the next commit"])
def test_a_log_that_is_lost_while_in_use_loses_nothing(
    tmp_path: Path, how: str, watched: bool
) -> None:
    path = tmp_path / "home" / "state.db"

    async def body(store: SqliteStore) -> None:
        assert await store.history(HistoryQuery())  # through a connection of its own
        LOSSES[how](path)
        if watched:
            await store.check()
            assert await found_in(crashed(path, tmp_path / "first")) == {"a"}
        await store.transact(define_group("b"))
        assert store.problem() == ""
        assert len(await store.history(HistoryQuery())) == 2
        assert await found_in(crashed(path, tmp_path / "second")) == {"a", "b"}
        copy = await store.copy(NOW.at)
        assert copy is not None
        copy.file.close()
        assert copy.contents.commit == 2

    run(troubled(path, body)())
    assert groups_in(path) == {"a", "b"}


def test_a_log_that_is_lost_while_it_is_read_is_saved_and_replaced_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "home" / "state.db"

    async def body(store: SqliteStore) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("SELECT count(*) FROM commits").fetchall()
            companion(path, "-wal").unlink()
            with pytest.raises(StoreFailed, match="removed, replaced or truncated"):
                await store.transact(define_group("b"))
            assert "not be saved" in store.problem()
            assert await found_in(crashed(path, tmp_path / "first")) == {"a"}
        await store.check()
        await store.transact(define_group("c"))
        assert store.problem() == ""
        assert await found_in(crashed(path, tmp_path / "second")) == {"a", "c"}

    run(troubled(path, body)())


@pytest.mark.parametrize("left", [0, 4_096])
def test_a_state_file_that_was_cut_off_while_in_use_takes_no_commits(
    tmp_path: Path, left: int
) -> None:
    path = tmp_path / "state.db"

    async def body(store: SqliteStore) -> None:
        os.truncate(path, left)
        for _ in range(2):
            with pytest.raises(StoreFailed, match="truncated"):
                await store.transact(define_group("b"))
        with pytest.raises(StoreFailed, match="truncated"):
            await store.check()
        assert "truncated" in store.problem()
        assert set(store.groups) == {"a"}
        assert path.stat().st_size == left  # nothing was written to it

    run(troubled(path, body)())


def test_a_log_that_was_cut_off_while_in_use_takes_no_commits(tmp_path: Path) -> None:
    """What was in it is lost, and more would be lost with it."""
    path = tmp_path / "state.db"

    async def body(store: SqliteStore) -> None:
        os.truncate(companion(path, "-wal"), 0)
        for _ in range(2):
            with pytest.raises(StoreFailed, match="truncated"):
                await store.transact(define_group("b"))
        assert "truncated" in store.problem()
        assert set(store.groups) == {"a"}

    run(troubled(path, body)())


def test_a_log_that_was_checkpointed_by_others_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def body(store: SqliteStore) -> None:
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await store.transact(define_group("b"))
        assert store.problem() == ""

    run(troubled(path, body)())
    assert groups_in(path) == {"a", "b"}


def test_another_file_in_the_place_of_the_state_does_not_get_the_log(tmp_path: Path) -> None:
    """SQLite would apply one state's log to the other."""
    path, other = tmp_path / "home" / "state.db", state_with_groups(tmp_path / "other.db", "x")

    async def body(store: SqliteStore) -> None:
        path.rename(tmp_path / "home" / "elsewhere.db")
        path.write_bytes(other.read_bytes())
        with pytest.raises(StoreFailed, match="removed or replaced"):
            await store.check()
        assert "removed or replaced" in store.problem()
        assert await found_in(crashed(path, tmp_path / "after")) == {"x"}
        assert await found_in(tmp_path / "after" / "elsewhere.db") == {"a"}

    run(troubled(path, body)())


def test_a_save_ends_the_problem_of_a_full_disk(tmp_path: Path) -> None:
    """So that a service on which nobody decides anything knows how it stands."""

    async def body(store: SqliteStore) -> None:
        def limit(pages: int) -> None:
            assert store._engine is not None
            with store._engine.connect() as connection:
                used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                connection.exec_driver_sql(f"PRAGMA max_page_count={used + pages}")

        await store._in_thread(limit, 0)
        many = {f"group-{n}": n for n in range(2_000)}
        with pytest.raises(StoreFailed, match="full"):
            await store.save(PollSightings(seen=many))
        assert "full" in store.problem()
        await store._in_thread(limit, 10_000)
        await store.save(PollSightings(seen=many))
        assert store.problem() == ""

    run(troubled(tmp_path / "state.db", body)())


def test_a_page_that_cannot_be_read_is_reported_and_harms_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def body(store: SqliteStore) -> None:
        assert await store.history(HistoryQuery())
        assert store._engine is not None
        await store._in_thread(_checkpoint, store)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            page = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'history_by_time'"
            ).fetchone()[0]
        with path.open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
        store._close_reader()  # which has the page in its cache
        with pytest.raises(StoreUnreadable, match="malformed"):
            await store.history(HistoryQuery(since=1))
        assert set(store.groups) == {"a"}

    run(troubled(path, body)())


def _checkpoint(store: SqliteStore) -> None:
    assert store._engine is not None
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_store_in_memory_has_no_problems_and_no_copy() -> None:
    async def work() -> None:
        store = MemoryStore()
        await store.open()
        assert store.problem() == ""
        assert await store.copy(NOW.at) is None

    run(work())


def test_a_commit_of_unknown_outcome_stops_the_service_though_its_caller_has_given_up(
    tmp_path: Path,
) -> None:
    committing, let_go = threading.Event(), threading.Event()
    stopped: list[OutcomeUnknown] = []

    def fail_once(_: object) -> None:
        if not committing.is_set():
            committing.set()
            let_go.wait()
            failure = sqlite3.OperationalError("disk I/O error")
            raise sa.exc.OperationalError("COMMIT", None, failure)

    async def body() -> None:
        store = await opened(tmp_path / "state.db")
        store.on_unknown_outcome(stopped.append)
        assert store._engine is not None
        sa.event.listen(store._engine, "commit", fail_once)
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(store.save(PollSightings(seen={}, served_until=1)))
            await asyncio.to_thread(committing.wait)
            given_up.cancel()
        asyncio.get_running_loop().call_soon(let_go.set)  # by then the next one is in the queue
        with pytest.raises(StoreFailed, match="disk I/O error"):
            await store.save(PollSightings(seen={}, served_until=2))
        await store.close()

    run(body())
    assert len(stopped) == 1

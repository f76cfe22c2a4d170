"""Whose a state file is: one service's at a time, and not taken up while somebody looks at it."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from forewarn.store import StoreUnusable
from forewarn.store.sqlite import check
from forewarn.store.sqlite import copy as copying
from forewarn.store.sqlite import lock as locking
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import companion, reader_lock, take_lock
from forewarn.store.sqlite.restore import restore
from forewarn.store.sqlite.state_file import SqliteFile
from helpers.forked_cli import run_script
from helpers.state_files import define_group, state_of_killed_service, state_with_groups


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def lock_of(state: Path) -> Path:
    return companion(state, ".lock")


async def opened(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


@pytest.mark.usefixtures("open_umask")
def test_a_new_lock_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """Whoever can open it can hold it, and keep a service from starting."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    lock_of(old).touch(0o644)
    for state, mode in ((new, 0o600), (old, 0o644)):
        take_lock(state).close()
        assert lock_of(state).stat().st_mode & 0o777 == mode


def test_a_lock_names_its_process_until_it_is_released(tmp_path: Path) -> None:
    lock = take_lock(tmp_path / "state.db")
    assert lock_of(tmp_path / "state.db").read_text() == f"process {os.getpid()}"
    lock.close()
    assert lock_of(tmp_path / "state.db").read_text() == ""


def test_several_readers_may_hold_the_lock_and_see_the_process_that_serves(tmp_path: Path) -> None:
    state = state_with_groups(tmp_path / "state.db", "a")
    with reader_lock(state) as first, reader_lock(state) as second:
        assert (first, second) == (None, None)
    lock = take_lock(state)
    with reader_lock(state) as holder:
        assert holder is not None
        assert f"process {os.getpid()};" in str(locking.in_use_error(state, holder))
    lock.close()


def test_a_start_waits_for_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_with_groups(tmp_path / "state.db", "a")
    tries: list[locking._Mode] = []
    waits = threading.Event()
    real = locking._lock_file

    def counted(file: IO[str], how: locking._Mode) -> bool:
        tries.append(how)
        if len(tries) > 4:
            waits.set()
        return real(file, how)

    failed: list[BaseException] = []

    def start() -> None:
        try:
            asyncio.run(opened(state))
        except BaseException as error:
            failed.append(error)

    with reader_lock(state):
        monkeypatch.setattr(locking, "_lock_file", counted)
        thread = threading.Thread(target=start)
        thread.start()
        assert waits.wait(60)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()
    assert failed == []


def test_a_start_refused_because_of_a_reader_names_no_dead_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_of_killed_service(tmp_path / "state.db", "a")
    assert lock_of(state).read_text().startswith("process ")  # of the one that was killed
    monkeypatch.setattr(locking, "READERS_TIMEOUT", 0.1)
    with reader_lock(state), pytest.raises(StoreUnusable) as output:
        asyncio.run(opened(state))
    assert "forewarn backup --state" in str(output.value)
    assert not re.search(r"process \d", str(output.value))
    asyncio.run(opened(state))


# One file, several names.

OPENED = """
import asyncio, sys
from pathlib import Path
from forewarn.store import StoreUnusable
from forewarn.store.sqlite.engine import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
try:
    asyncio.run(store.open())
    print("opened")
except StoreUnusable as error:
    print(error)
"""


def opened_elsewhere(path: Path) -> str:
    """What another process is told that wants the state."""
    done = run_script(OPENED, path)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A state that this process has, with a commit that is only in its log."""
    path = tmp_path / "home" / "state.db"
    store = SqliteStore(path)

    async def begin() -> None:
        await store.open()
        await store.transact(define_group("a"))

    with asyncio.Runner() as runner:
        runner.run(begin())
        yield path
        runner.run(store.close())


@pytest.fixture
def hard_link(tmp_path: Path, running: Path) -> Path:
    other = tmp_path / "other" / "linked.db"
    other.parent.mkdir()
    os.link(running, other)
    return other


def test_a_hard_link_admits_no_second_process(running: Path, hard_link: Path) -> None:
    refusal = opened_elsewhere(hard_link)
    assert refusal.startswith(f"{hard_link} ")
    assert f"process {os.getpid()} as {running}," in refusal
    assert {file.name for file in hard_link.parent.iterdir()} == {"linked.db"}


def test_a_hard_link_admits_no_second_store_in_the_same_process(
    running: Path, hard_link: Path
) -> None:
    with pytest.raises(StoreUnusable, match=f"process {os.getpid()} as {running}"):
        asyncio.run(opened(hard_link))
    keeps_its_locks(running)


def test_a_symbolic_link_is_the_same_name(running: Path, tmp_path: Path) -> None:
    (tmp_path / "symbolic.db").symlink_to(running)
    refusal = opened_elsewhere(tmp_path / "symbolic.db")
    assert refusal.startswith(f"{running} ")
    assert f"process {os.getpid()};" in refusal


def test_a_lock_file_that_was_removed_admits_no_second_process(running: Path) -> None:
    lock_of(running).unlink()
    refusal = opened_elsewhere(running)
    assert refusal.startswith(f"{running} ")
    assert f"process {os.getpid()}" in refusal


def test_reading_a_state_in_use_under_another_name_is_refused(
    running: Path, hard_link: Path
) -> None:
    """Its log is not to be found there."""
    for look in (
        lambda: copying.copy(hard_link, hard_link.parent / "backup", 1),
        lambda: check.check_file(hard_link),
        lambda: SqliteFile(hard_link).upgrade(),
    ):
        with pytest.raises(StoreUnusable, match=f"as {running}"):
            look()
    assert copying.copy(running, running.parent / "backup", 1).groups == 1
    keeps_its_locks(running)


def test_a_state_is_not_restored_over_one_that_is_in_use_under_another_name(
    running: Path, hard_link: Path, tmp_path: Path
) -> None:
    backup = state_with_groups(tmp_path / "backup.db", "b")
    with pytest.raises(StoreUnusable, match=f"as {running}"):
        restore(backup, hard_link, 1, force=True)
    assert running.samefile(hard_link)


LOOKED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM commits").fetchone()[0])
connection.close()
"""


def keeps_its_locks(path: Path) -> None:
    """SQLite's own are lost if a process closes any descriptor of the file; then another process
    would take itself for the last one, and remove the log."""
    done = run_script(LOOKED, path, check=True)
    assert done.stdout == "1\n"
    assert companion(path, "-wal").stat().st_size > 0


def test_a_copy_is_another_file(running: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copying.copy(running, copy, 1)
    assert opened_elsewhere(copy) == "opened"


def test_a_hard_link_may_be_used_once_nobody_has_the_other_name(tmp_path: Path) -> None:
    state, other = state_with_groups(tmp_path / "state.db", "a"), tmp_path / "other.db"
    os.link(state, other)
    asyncio.run(opened(other))
    asyncio.run(opened(state))

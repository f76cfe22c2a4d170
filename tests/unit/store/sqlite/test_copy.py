"""Copies of a state file: made while it is written, and put in its place, or refused."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import GroupKind, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes
from forewarn.store import Batch, Entry, StoreFailed, StoreUnusable
from forewarn.store.port import Contents, Copy, RestoreResult, States, StoreUnreadable
from forewarn.store.sql.schema import SCHEMA_VERSION
from forewarn.store.sqlite import check, verify
from forewarn.store.sqlite import copy as copying
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.store.sqlite.lock import companion
from forewarn.store.sqlite.restore import restore
from helpers.forked_cli import run_script
from helpers.state_files import (
    COPIED,
    NOW,
    WRECKS,
    define_group,
    groups_in,
    names,
    state_of_killed_service,
    state_with_groups,
)


def copied(state: Path, target: Path) -> Path:
    copying.copy(state, target, COPIED)
    return target


def restored(backup: Path, state: Path, *, force: bool = False) -> RestoreResult:
    return restore(backup, state, COPIED + 1, force=force)


def whole(path: Path) -> Contents:
    with check.reading(path) as connection:
        return verify.verify(connection, path)


# Making a copy.


def test_a_copy_is_one_file_for_its_owner_alone_that_says_it_is_a_copy(tmp_path: Path) -> None:
    state = state_with_groups(tmp_path / "state.db", "a", "b")
    before = state.read_bytes()
    found = copying.copy(state, tmp_path / "backup", COPIED)
    assert (found.schema, found.commit, found.groups, found.machines) == (SCHEMA_VERSION, 2, 2, 2)
    assert (found.at, found.copied_at) == (NOW.at, COPIED)
    backup = tmp_path / "backup"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert whole(backup) == found
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert state.read_bytes() == before
    assert names(tmp_path) == {"state.db", "state.db.lock", "backup"}


def test_what_a_killed_service_has_left_in_its_log_is_in_the_copy(tmp_path: Path) -> None:
    state = state_of_killed_service(tmp_path / "state.db", "a", "b")
    backup = copied(state, tmp_path / "backup")
    assert companion(state, "-wal").stat().st_size > 0  # and still there as well
    assert groups_in(backup) == groups_in(state) == {"a", "b"}


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Copies that stop in the middle: the first event says so, the second lets them go on."""
    middle, go_on = threading.Event(), threading.Event()
    reading = check.reading
    looks: list[int] = []  # at how far it has come, since it began to copy

    def traced(statement: str) -> None:
        if statement.startswith("VACUUM INTO"):
            looks.append(0)

    def wait() -> None:
        if looks:
            looks[0] += 1
            if looks[0] > 20:
                middle.set()
                assert go_on.wait(60)

    @contextlib.contextmanager
    def stopping(path: Path, **more: bool) -> Iterator[sqlite3.Connection]:
        with reading(path, **more) as connection:
            if not more:
                connection.set_trace_callback(traced)
                connection.set_progress_handler(wait, 20)
            yield connection

    monkeypatch.setattr(check, "reading", stopping)
    yield middle, go_on
    go_on.set()


def test_commits_do_not_wait_for_a_copy_and_are_not_half_in_it(
    tmp_path: Path, paused: tuple[threading.Event, threading.Event]
) -> None:
    middle, go_on = paused

    async def both() -> Contents:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        try:
            for n in range(20):
                await store.transact(define_group(f"before-{n}"))
            copying_ = asyncio.get_running_loop().create_task(store.copy(COPIED))
            assert await asyncio.to_thread(middle.wait, 20)
            for n in range(20):
                await store.transact(define_group(f"during-{n}"))  # returns: nothing is waited for
            assert not copying_.done()
            go_on.set()
            copy = await copying_
            assert copy is not None
            with copy.file:
                (tmp_path / "backup").write_bytes(copy.file.read())
            assert copy.size == (tmp_path / "backup").stat().st_size
            assert names(tmp_path) >= {"state.db", "backup"}
            assert not [name for name in names(tmp_path) if copying.TEMPORARY in name]
            return copy.contents
        finally:
            await store.close()

    found = asyncio.run(both())
    assert found.commit == 20
    assert groups_in(tmp_path / "backup") == {f"before-{n}" for n in range(20)}
    assert len(groups_in(tmp_path / "state.db")) == 40


def test_a_copy_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        try:
            await store.transact(define_group("a"))
            with monkeypatch.context() as broken:

                def full(_: Path) -> None:
                    raise OSError(errno.ENOSPC, "full")

                broken.setattr(copying, "sync", full)
                with pytest.raises(StoreFailed, match=r"no copy .*full"):
                    await store.copy(COPIED)
            assert store.problem() == ""  # the state itself is well
            await store.transact(define_group("b"))
        finally:
            await store.close()

    asyncio.run(fail())
    assert names(tmp_path) == {"state.db", "state.db.lock"}


def test_what_a_killed_process_left_unfinished_is_cleared_away(tmp_path: Path) -> None:
    state = state_with_groups(tmp_path / "state.db", "a")
    left = tmp_path / f"state.db{copying.TEMPORARY}x"
    left.mkdir()
    (left / "copy").write_bytes(b"half")
    assert groups_in(state) == {"a"}
    assert not left.exists()


def test_a_file_put_in_the_place_of_the_state_is_not_copied_as_the_state(tmp_path: Path) -> None:
    """Neither what was there before, nor what somebody puts there while it is read."""
    state, other = tmp_path / "state.db", state_with_groups(tmp_path / "other.db", "x")
    real = copying.copy_to_stream

    def exchanged(*arguments: Any) -> Copy:
        made = real(*arguments)
        state.rename(tmp_path / "elsewhere.db")
        state.write_bytes(other.read_bytes())
        return made

    async def replaced(patch: pytest.MonkeyPatch) -> None:
        store = SqliteStore(state)
        await store.open()
        try:
            await store.transact(define_group("a"))
            patch.setattr(copying, "copy_to_stream", exchanged)
            for _ in range(2):  # while it is copied, and before
                with pytest.raises(StoreUnreadable, match=r"no copy .* removed or replaced"):
                    await store.copy(COPIED)
                patch.setattr(copying, "copy_to_stream", real)
        finally:
            await store.close()

    with pytest.MonkeyPatch.context() as patch:
        asyncio.run(replaced(patch))


def test_groups_whose_machines_are_all_gone_are_not_counted(tmp_path: Path) -> None:
    state = state_with_groups(tmp_path / "state.db", "a", "b")

    def empty(states: States) -> Batch:
        none = c.Define(kind=GroupKind.STANDALONE, machines=(), force=True)
        decision = decide(states["b"], none, NOW)
        assert isinstance(decision, Changes)
        return Batch(NOW.at, 0, (Entry("b", decision.items),))

    async def emptied() -> None:
        store = SqliteStore(state)
        await store.open()
        try:
            await store.transact(empty)
        finally:
            await store.close()

    asyncio.run(emptied())
    found = copying.copy(state, tmp_path / "backup", COPIED)
    assert (found.groups, found.machines) == (1, 1)


# Putting one in the state's place.


def test_a_copy_becomes_the_state(tmp_path: Path) -> None:
    backup = copied(state_with_groups(tmp_path / "old.db", "a", "b"), tmp_path / "backup")
    state = tmp_path / "new" / "state.db"
    done = restored(backup, state)
    assert done.contents == whole(backup)
    assert done.kept is None
    assert state.stat().st_mode & 0o777 == 0o600
    assert groups_in(state) == {"a", "b"}
    with check.reading(state) as connection:  # until somebody serves it
        assert verify.contents(connection, state).copied_at == COPIED


def test_a_raw_state_file_can_be_restored_too_and_counts_as_a_copy(tmp_path: Path) -> None:
    raw = state_of_killed_service(tmp_path / "raw.db", "a", "b")
    restored(raw, tmp_path / "state.db")
    assert whole(tmp_path / "state.db").copied_at == COPIED + 1
    assert groups_in(tmp_path / "state.db") == {"a", "b"}


def test_an_existing_state_is_replaced_only_by_force_and_kept_beside(tmp_path: Path) -> None:
    state = state_of_killed_service(tmp_path / "state.db", "a", "b", "c")
    backup = copied(state_with_groups(tmp_path / "old.db", "a"), tmp_path / "backup")
    before = names(tmp_path)
    with pytest.raises(StoreUnusable, match=r"state\.db exists; pass --force"):
        restored(backup, state)
    assert names(tmp_path) == before
    first = restored(backup, state, force=True)
    assert first.kept == tmp_path / "state.db.before-restore"
    assert not companion(state, "-wal").exists()
    assert groups_in(state) == {"a"}
    again = restored(backup, state, force=True)
    assert again.kept == tmp_path / "state.db.before-restore-2"
    assert groups_in(first.kept) == {"a", "b", "c"}  # with what was only in its log
    assert groups_in(again.kept) == {"a"}


def test_a_state_is_replaced_on_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    state = state_with_groups(tmp_path / "state.db", "a", "b")
    backup = copied(state_with_groups(tmp_path / "old.db", "a"), tmp_path / "backup")
    done = restored(backup, state, force=True)
    assert done.kept is not None
    assert groups_in(done.kept) == {"a", "b"}
    assert groups_in(state) == {"a"}


def test_a_damaged_state_is_replaced_and_kept_with_its_log(tmp_path: Path) -> None:
    state = state_of_killed_service(tmp_path / "state.db", "a")
    backup = copied(state_with_groups(tmp_path / "old.db", "b"), tmp_path / "backup")
    state.write_bytes(b"garbage" * 1_000)
    log = companion(state, "-wal").read_bytes()
    done = restored(backup, state, force=True)
    assert done.kept is not None
    assert done.kept.read_bytes() == b"garbage" * 1_000
    assert companion(done.kept, "-wal").read_bytes() == log
    assert groups_in(state) == {"b"}


def test_a_log_without_its_state_does_not_prevent_a_restore_and_is_kept(tmp_path: Path) -> None:
    state = state_of_killed_service(tmp_path / "state.db", "a")
    backup = copied(state_with_groups(tmp_path / "old.db", "b"), tmp_path / "backup")
    state.unlink()
    with pytest.raises(StoreUnusable, match="--force"):
        restored(backup, state)
    done = restored(backup, state, force=True)
    assert done.kept is not None
    assert companion(done.kept, "-wal").exists()
    assert groups_in(state) == {"b"}


def test_nothing_is_restored_while_a_service_has_the_state(tmp_path: Path) -> None:
    backup = copied(state_with_groups(tmp_path / "old.db", "a"), tmp_path / "backup")

    async def serving() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.open()
        try:
            with pytest.raises(StoreUnusable, match=f"process {os.getpid()}"):
                restored(backup, tmp_path / "state.db", force=True)
            await store.transact(define_group("b"))
        finally:
            await store.close()

    asyncio.run(serving())
    assert groups_in(tmp_path / "state.db") == {"b"}


@pytest.mark.parametrize("how", WRECKS)
def test_a_copy_that_is_not_whole_is_refused_and_changes_nothing(tmp_path: Path, how: str) -> None:
    wreck, says = WRECKS[how]
    backup = copied(state_with_groups(tmp_path / "old.db", "a", "b"), tmp_path / "backup")
    wreck(backup)
    state = state_with_groups(tmp_path / "state.db", "c")
    before = names(tmp_path)
    with pytest.raises(StoreUnusable, match=says) as output:
        restored(backup, state, force=True)
    assert "\n" not in str(output.value)
    assert names(tmp_path) == before
    assert groups_in(state) == {"c"}


def test_a_copy_of_itself_a_directory_or_nothing_is_refused(tmp_path: Path) -> None:
    state = state_with_groups(tmp_path / "state.db", "a")
    for backup, says in (
        (state, "the state itself"),
        (tmp_path, "is not a file"),
        (tmp_path / "nothing", "is not a file"),
    ):
        with pytest.raises(StoreUnusable, match=says):
            restored(backup, state, force=True)
    with pytest.raises(StoreUnusable, match="is a directory"):
        restored(copied(state, tmp_path / "backup"), tmp_path)


def test_a_state_restored_by_root_belongs_to_the_owner_of_its_directory(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give files away")
    backup = copied(state_with_groups(tmp_path / "old.db", "a"), tmp_path / "backup")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 12_345, 12_346)
    restored(backup, home / "state.db")
    for name in ("state.db", "state.db.lock"):
        made = (home / name).stat()
        assert (made.st_uid, made.st_gid) == (12_345, 12_346), name


DYING = """
import os, signal, sys
from pathlib import Path
from forewarn.store.sqlite.restore import restore

WATCHED = ("open", "os.link", "os.rename", "os.remove", "os.rmdir", "os.chown", "os.mkdir",
           "os.scandir", "sqlite3.connect")

def dying(die_at):
    steps = 0
    def step(event, args):
        nonlocal steps
        if event in WATCHED:
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
    return step

die_at = 0
for state in map(Path, sys.argv[2:]):
    die_at += 1
    if child := os.fork():
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break  # there are no more steps
    else:
        sys.addaudithook(dying(die_at))
        restore(Path(sys.argv[1]), state, 7, force=True)
        os._exit(0)
print(die_at)
"""
STEPS_AT_MOST = 80


def test_a_restore_killed_at_any_step_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    """Audit events are raised before what they tell of: a death at each is one between any two."""
    backup = copied(state_with_groups(tmp_path / "old.db", "a"), tmp_path / "backup")
    state_of_killed_service(tmp_path / "state.db", "b", "c")
    states = [tmp_path / f"{n}" / "state.db" for n in range(1, STEPS_AT_MOST)]
    for state in states:
        state.parent.mkdir()
        for name in ("state.db", "state.db-wal"):
            (state.parent / name).write_bytes((tmp_path / name).read_bytes())
    done = run_script(DYING, backup, *states, check=True)
    steps = int(done.stdout)
    assert 20 < steps < STEPS_AT_MOST - 1
    found = []
    for state in states[:steps]:
        now = groups_in(state)
        assert now in ({"a"}, {"b", "c"}), state
        found.append(now == {"a"})
        if now == {"b", "c"}:  # it can simply be done again
            restored(backup, state, force=True)
            assert groups_in(state) == {"a"}
        assert groups_in(companion(state, ".before-restore")) == {"b", "c"}
        assert not [name for name in names(state.parent) if copying.TEMPORARY in name]
    assert found == sorted(found)  # first always the old, then always the new
    assert found.count(True) > 1

"""Whose a state file is: one service's at a time, and not taken up while somebody looks at it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from test_copies import grown, killed

from forewarn.store import StoreUnusable, locking
from forewarn.store.locking import locked, watched
from forewarn.store.naming import beside
from forewarn.store.sqlite import SqliteStore


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def lock_of(state: Path) -> Path:
    return beside(state, ".lock")


async def opened(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


@pytest.mark.usefixtures("open_umask")
def test_a_lock_is_its_owners_alone_unless_it_was_there(tmp_path: Path) -> None:
    """Whoever can open it can hold it, and keep a service from starting."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    lock_of(old).touch(0o644)
    for state, mode in ((new, 0o600), (old, 0o644)):
        locked(state).close()
        assert lock_of(state).stat().st_mode & 0o777 == mode


def test_a_lock_names_whoever_has_it_and_nobody_afterwards(tmp_path: Path) -> None:
    lock = locked(tmp_path / "state.db")
    assert lock_of(tmp_path / "state.db").read_text() == f"process {os.getpid()}"
    lock.close()
    assert lock_of(tmp_path / "state.db").read_text() == ""


def test_many_may_look_at_once_and_see_who_has_it(tmp_path: Path) -> None:
    state = grown(tmp_path / "state.db", "a")
    with watched(state) as first, watched(state) as second:
        assert (first, second) == (None, None)
    lock = locked(state)
    with watched(state) as holder:
        assert holder is not None
        assert f"in use by process {os.getpid()}" in str(locking.in_use(state, holder))
    lock.close()


def test_a_start_waits_for_whoever_only_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = grown(tmp_path / "state.db", "a")
    tries: list[int] = []
    waits = threading.Event()
    real = locking._got

    def counted(file: IO[str], how: int) -> bool:
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

    with watched(state):
        monkeypatch.setattr(locking, "_got", counted)
        thread = threading.Thread(target=start)
        thread.start()
        assert waits.wait(60)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()
    assert failed == []


def test_a_look_that_takes_too_long_is_named_and_no_dead_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = killed(tmp_path / "state.db", "a")
    assert lock_of(state).read_text().startswith("process ")  # of the one that was killed
    monkeypatch.setattr(locking, "LOOKERS_WITHIN", 0.1)
    with watched(state), pytest.raises(StoreUnusable) as said:
        asyncio.run(opened(state))
    assert "is being looked at by another command (forewarn backup --state" in str(said.value)
    assert "process" not in str(said.value)
    asyncio.run(opened(state))

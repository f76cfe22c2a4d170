"""Locks on open files: exclusive or shared, released by hand or with the file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from forewarn.support.files.lock import WINDOWS_LOCK, try_lock, unlock


@pytest.fixture
def files(tmp_path: Path) -> list[int]:
    path = tmp_path / "lock"
    path.write_bytes(b"content")
    return [os.open(path, os.O_RDWR) for _ in range(2)]


def test_an_exclusive_lock_excludes_others_until_it_is_released(files: list[int]) -> None:
    mine, other = files
    assert try_lock(mine)
    assert not try_lock(other)
    assert not try_lock(other, shared=True)
    unlock(mine)
    assert try_lock(other)
    os.close(other)
    assert try_lock(mine)


def test_shared_locks_exclude_only_an_exclusive_one(files: list[int]) -> None:
    mine, other = files
    assert try_lock(mine, shared=True)
    assert try_lock(other, shared=True)
    assert not try_lock(mine)


def test_on_windows_a_byte_beyond_the_content_is_locked(
    files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: dict[int, int] = {}

    def locking(file: int, mode: str, size: int) -> None:
        assert size == 1
        if mode == "unlock":
            del locked[file]
            return
        if locked:
            raise PermissionError
        locked[file] = os.lseek(file, 0, os.SEEK_CUR)

    windows = SimpleNamespace(locking=locking, LK_NBLCK="lock", LK_UNLCK="unlock")
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    mine, other = files
    os.lseek(mine, 3, os.SEEK_SET)
    assert try_lock(mine)
    assert locked == {mine: WINDOWS_LOCK}
    assert os.read(mine, 4) == b"tent"  # the position of the file has not changed
    assert not try_lock(other)
    unlock(mine)
    assert try_lock(other)

"""Locks on open files, which other processes respect and which end with the process.

A lock belongs to the open file (`flock`) or, on Windows, to a byte far beyond its content, because
other processes cannot read a byte that is locked there. Windows has no shared locks: each of them
is exclusive.
"""

from __future__ import annotations

import os

WINDOWS_LOCK = 1 << 30  # position of the locked byte; `msvcrt.locking` cannot reach beyond 2 GiB


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file, or change the lock on it; return False if another process has one that
    excludes it. Raises OSError if the file system has no locks."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return _try_lock_on_windows(file)
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(file: int) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:
        _locking(file, "LK_UNLCK")
    else:
        fcntl.flock(file, fcntl.LOCK_UN)


def _try_lock_on_windows(file: int) -> bool:
    try:
        _locking(file, "LK_NBLCK")
    except PermissionError:
        return False
    return True


def _locking(file: int, mode: str) -> None:
    import msvcrt

    position = os.lseek(file, 0, os.SEEK_CUR)
    os.lseek(file, WINDOWS_LOCK, os.SEEK_SET)
    try:
        msvcrt.locking(file, getattr(msvcrt, mode), 1)  # type: ignore[attr-defined]
    finally:
        os.lseek(file, position, os.SEEK_SET)

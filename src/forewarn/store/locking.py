"""The lock on a state file: it belongs to one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from forewarn.store.port import StoreUnusable


def locked(path: Path) -> IO[str]:
    """Hold the file for this process; the lock dies with the process, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _beside(path).open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        with lock:
            raise in_use(path, lock) from error
    try:
        lock.seek(0)
        lock.truncate()
        lock.write(f"process {os.getpid()}")
        lock.flush()
    except BaseException:
        with contextlib.suppress(OSError):
            lock.close()
        raise
    return lock


@contextlib.contextmanager
def watched(path: Path) -> Iterator[IO[str] | None]:
    """Keep others from taking the file up while it is looked at, without a trace of us. Given is
    the lock of whoever has it already, None if nobody has."""
    try:
        lock = _beside(path).open("r")
    except FileNotFoundError:  # so nobody can have it
        yield None
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield lock
        else:
            yield None


def in_use(path: Path, lock: IO[str]) -> StoreUnusable:
    lock.seek(0)
    holder = lock.read().strip() or "another process"
    return StoreUnusable(f"{path} is in use by {holder}; stop that or choose another file")


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".lock")

"""The lock on a state file: it belongs to one process at a time. Whoever only looks shares the
lock with others that look, so that nobody takes the file up meanwhile; a start waits for those.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from forewarn.store.naming import beside
from forewarn.store.port import StoreUnusable

LOOKERS_WITHIN = 10.0  # seconds that a start waits for those who only look at the file
LOOK_AGAIN = 0.05  # seconds between two tries


class Lock:
    """The file, held for this process; the lock dies with the process, however it dies."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()

    def close(self) -> None:
        """Nobody is to be named who does not have it."""
        with contextlib.suppress(OSError):
            os.truncate(self._file.fileno(), 0)
        self._file.close()


def locked(path: Path) -> Lock:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _private(beside(path, ".lock")).open("a+")
    try:
        _take(path, file)
        return Lock(file)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise


@contextlib.contextmanager
def watched(path: Path) -> Iterator[IO[str] | None]:
    """Keep others from taking the file up while it is looked at, without a trace of us. Given is
    the lock of whoever has it already, None if nobody has."""
    try:
        lock = beside(path, ".lock").open("r")
    except FileNotFoundError:  # so nobody can have it
        yield None
        return
    with lock:
        yield None if _got(lock, fcntl.LOCK_SH) else lock


def in_use(path: Path, lock: IO[str]) -> StoreUnusable:
    lock.seek(0)
    holder = lock.read().strip() or "another process"
    return StoreUnusable(f"{path} is in use by {holder}; stop that or choose another file")


def _take(path: Path, file: IO[str]) -> None:
    for _ in range(round(LOOKERS_WITHIN / LOOK_AGAIN)):
        if _got(file, fcntl.LOCK_EX):
            return
        if not _got(file, fcntl.LOCK_SH):  # then somebody has it for itself
            raise in_use(path, file)
        fcntl.flock(file, fcntl.LOCK_UN)
        threading.Event().wait(LOOK_AGAIN)
    raise StoreUnusable(
        f"{path} is being looked at by another command (forewarn backup --state, config check),"
        f" for longer than {LOOKERS_WITHIN:g} s; start again when that is done"
    )


def _got(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _private(path: Path) -> Path:
    """Make it, for its owner alone, unless it is there: whoever can open it could hold it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path

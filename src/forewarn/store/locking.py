"""The lock on a state file: it belongs to one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from forewarn.store.port import StoreUnusable


def locked(path: Path) -> IO[str]:
    """Hold the file for this process; the lock dies with the process, however it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise StoreUnusable(
            f"{path} is in use by {holder}; stop that or choose another file"
        ) from error
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock

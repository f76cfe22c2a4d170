"""Locks on files, which end with whoever holds them, however it ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what a system says of one that is


def taken(path: Path) -> int | None:
    """The open file, locked for as long as it is; None if somebody else has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(file)
    except OSError as error:
        os.close(file)
        if error.errno not in HELD:  # a file system without locks, say
            raise
        return None
    return file


def held(path: Path) -> bool:
    """Whether somebody has it now. Whoever wants it in this moment waits for that long."""
    file = taken(path)
    if file is None:
        return True
    os.close(file)
    return False


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

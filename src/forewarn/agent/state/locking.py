"""Locks on files, which end with whoever holds them, however it ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

HELD = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what a system says of one that is


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def taken(path: Path) -> int | None:
    """The open file, locked for as long as it is; None if somebody else has it."""
    file = opened(path)
    try:
        if _lock(file):
            return file
    except OSError:  # a file system without locks, say
        os.close(file)
        raise
    os.close(file)
    return None


def taken_with_directory(path: Path) -> list[int] | None:
    """Lock a file and the directory it is in, which stays locked if the file is removed; None if
    somebody else has either. A directory that cannot be locked (Windows, NFS) is left out."""
    file = taken(path)
    if file is None:
        return None
    if sys.platform == "win32":
        return [file]
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        if _lock(directory):
            return [file, directory]
    except OSError:
        os.close(directory)
        return [file]
    os.close(directory)
    os.close(file)
    return None


def held(path: Path) -> bool:
    """Whether somebody has it now. Whoever wants it in this moment waits for that long."""
    file = opened(path)
    try:
        return held_elsewhere(file)
    finally:
        os.close(file)


def held_elsewhere(file: int) -> bool:
    """The same for a file that is already open, even if it has been removed since."""
    if not _lock(file):
        return True
    _unlock(file)
    return False


def _lock(file: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in HELD:
            raise
        return False
    return True


def _unlock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)

"""Durable files and file locks: the only place where the agent's state is written.

A file that is written here is either complete or absent, whatever process dies at which moment, and
when a call returns, what it did survives a loss of power. A lock ends with the process that holds
it, however that process ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from forewarn.support.system import sync

PRIVATE = 0o600  # options and outputs of hooks may contain secrets
PRIVATE_DIRECTORY = 0o700
LOCKED = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # errors for a lock that is held elsewhere


# Files


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync(path.parent)


def read_tail(path: Path, size: int) -> bytes:
    """Return the last `size` bytes of a regular file, without following links or blocking; nothing
    for any other kind of file."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return b""
        os.lseek(file, max(0, status.st_size - size), os.SEEK_SET)
        return os.read(file, size)
    finally:
        os.close(file)


# Directories


def make_directory(directory: Path) -> None:
    """Create a directory, and its parents as needed."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(PRIVATE_DIRECTORY)
    sync(directory.parent)


def repair_directory(directory: Path, root: Path) -> None:
    """Make sure that `directory`, and each one between it and `root`, is a directory that we can
    use: create what is missing, replace what is not a directory, and restore our permissions."""
    below = directory.relative_to(root)
    for path in (root, *(root / level for level in reversed(below.parents[:-1])), directory):
        try:
            mode = path.stat().st_mode if path == root else path.lstat().st_mode
        except FileNotFoundError:
            make_directory(path)
            continue
        if not stat.S_ISDIR(mode):
            path.unlink()
            make_directory(path)
        elif mode & PRIVATE_DIRECTORY != PRIVATE_DIRECTORY:
            path.chmod(PRIVATE_DIRECTORY)


def permission_problem(directory: Path) -> str:
    """Return why users other than us and root could write there; empty if they cannot. What is in
    the state directory is run with our rights."""
    if os.name == "nt":
        return ""
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()):
        return f"{directory} belongs to another user, who could have the agent run anything"
    if status.st_mode & stat.S_IWOTH:
        return (
            f"{directory} is writable by everyone, and the agent runs what is in it: chmod o-w, or"
            " set [agent] state to a directory below it, which the agent creates for itself"
        )
    return ""


def remove_tree(directory: Path) -> None:
    """Remove a directory with everything in it. What cannot be removed stays for the next time."""
    with contextlib.suppress(OSError):
        if directory.is_symlink() or directory.is_file():
            directory.unlink()

    def retry(function: Callable[[str], object], path: str, _error: object) -> None:
        """Restore our permissions on a directory that we own, and try again."""
        with contextlib.suppress(OSError):
            for level in (Path(path).parent, Path(path)):
                if level.is_relative_to(directory) and level.is_dir():
                    level.chmod(PRIVATE_DIRECTORY)
            if function in (os.unlink, os.rmdir):
                function(path)
            elif not Path(path).is_symlink():
                shutil.rmtree(path, ignore_errors=True)

    shutil.rmtree(directory, onerror=retry)
    shutil.rmtree(directory, ignore_errors=True)


# Locks


def open_lock(path: Path) -> int:
    """Open a lock file without locking it."""
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)


def try_lock(path: Path) -> int | None:
    """Return the open file, which is locked until it is closed; None if the lock is held
    elsewhere."""
    file = open_lock(path)
    try:
        if _lock(file):
            return file
    except OSError:  # a file system without locks, say
        os.close(file)
        raise
    os.close(file)
    return None


def try_lock_with_directory(path: Path) -> list[int] | None:
    """Lock a file and the directory it is in, which stays locked if the file is removed; None if
    either lock is held elsewhere. A directory that cannot be locked (Windows, NFS) is left out."""
    file = try_lock(path)
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


def is_locked(path: Path) -> bool:
    """Whether the lock is held elsewhere. It is taken for an instant to find out."""
    file = open_lock(path)
    try:
        return is_open_file_locked(file)
    finally:
        os.close(file)


def is_open_file_locked(file: int) -> bool:
    """Like `is_locked` for a file that is already open, even if it has been removed since."""
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
        if error.errno not in LOCKED:
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

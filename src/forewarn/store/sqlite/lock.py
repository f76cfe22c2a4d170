"""The lock on a state file: one process at a time may use it. Processes that only read share the
lock, so that no other opens the file meanwhile; a start waits for them.

There are two locks. The one on `.lock` next to the file protects the name, even while the file does
not exist or is being replaced. The one on the file itself protects the inode, which may have other
names (hard links, bind mounts) with other logs next to them, and it holds even if `.lock` was
removed. It is a lock of the open file description (OFD), far beyond the bytes that SQLite locks: a
lock of the process would be lost as soon as any descriptor of the file is closed. SQLite's own
locks are of that kind, so this descriptor is opened before SQLite's and closed after them, and a
process that has the state must not open the file in any other way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from forewarn.store.port import StoreUnusable

LOOKERS_WITHIN = 10.0  # seconds that a start waits for processes that only read the file
LOOK_AGAIN = 0.05  # seconds between two tries


# Positions of locked bytes in the file; those of SQLite are part of its format.
INODE_LOCK = 1 << 62
SQLITE_SHARED, SQLITE_SHARED_BYTES = 0x40000002, 510

_FLOCK = struct.Struct("hhqqi")  # struct flock
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)
_TYPES = {
    fcntl.LOCK_EX: fcntl.F_WRLCK,
    fcntl.LOCK_SH: fcntl.F_RDLCK,
    fcntl.LOCK_UN: fcntl.F_UNLCK,
}

# The files that this process has open, by device and inode, with their names. It must not open one
# of them again to find out.
_ours: dict[tuple[int, int], Path] = {}


class Lock:
    """The lock of this process on the file. It ends with the process, however that ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._inode: tuple[int, int] | None = None
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()}")
        file.flush()

    def take_inode(self, path: Path) -> None:
        """Lock the file itself as well, once it exists."""
        inode = _inode(path)
        if inode in _ours:
            raise _in_use_as(path, inode)
        descriptor = os.open(path, os.O_RDWR)
        try:
            _take(path, lambda how: _inode_got(descriptor, how), lambda: _in_use_as(path, inode))
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._inode = descriptor, inode
        _ours[inode] = path

    def close(self) -> None:
        """Release the lock, and remove the name of this process from the lock file."""
        if self._descriptor is not None and self._inode is not None:
            del _ours[self._inode]
            os.close(self._descriptor)
            self._descriptor = None
        with contextlib.suppress(OSError):
            os.truncate(self._file.fileno(), 0)
        self._file.close()


def companion(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to the state file: its log, index, lock, or a copy."""
    return path.with_name(path.name + suffix)


def locked(path: Path) -> Lock:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _private(companion(path, ".lock")).open("a+")
    try:
        _take(path, lambda how: _got(file, how), lambda: in_use(path, file))
        lock = Lock(file)
        if path.exists():
            lock.take_inode(path)
        return lock
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise


@contextlib.contextmanager
def watched(path: Path) -> Iterator[IO[str] | None]:
    """Keep other processes from opening the file while it is read, without writing anything. Yields
    the lock file of the process that has it open already, None if there is none. Raises
    StoreUnusable if a process has it open under another name, because its log is not here then."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):  # then nobody has it under this name
            lock = stack.enter_context(companion(path, ".lock").open("r"))
            if not _got(lock, fcntl.LOCK_SH):
                yield lock
                return
        stack.enter_context(_inode_shared(path))
        yield None


def in_use(path: Path, lock: IO[str]) -> StoreUnusable:
    lock.seek(0)
    holder = lock.read().strip() or "another process"
    return StoreUnusable(f"{path} is in use by {holder}; stop that or choose another file")


def _in_use_as(path: Path, inode: tuple[int, int]) -> StoreUnusable:
    """Return the error for a file that is in use, possibly under another name."""
    holder, name = _holder(path, inode)
    if name is None or name == path.resolve():
        return StoreUnusable(f"{path} is in use by {holder}; stop that or choose another file")
    return StoreUnusable(
        f"{path} is in use by {holder} as {name}, which is the same file under another name (a hard"
        " link or a bind mount); stop that or choose another file"
    )


def _holder(path: Path, inode: tuple[int, int]) -> tuple[str, Path | None]:
    """Return the process that has it open, and under which name, as far as can be found out."""
    if inode in _ours:
        return f"process {os.getpid()}", _ours[inode]
    try:
        with path.open("rb") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, SQLITE_SHARED, SQLITE_SHARED_BYTES, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return "another process", None
    if kind == fcntl.F_UNLCK or pid <= 0:
        return "another process", None
    with contextlib.suppress(OSError):
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if _inode(opened) == inode:
                    return f"process {pid}", opened.readlink()
    return f"process {pid}", None


@contextlib.contextmanager
def _inode_shared(path: Path) -> Iterator[None]:
    try:
        inode = _inode(path)
        if inode in _ours:
            raise _in_use_as(path, inode)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # the reader will report it
        yield
        return
    try:
        held_by_others = False
        with contextlib.suppress(OSError):  # a file system may have no locks
            held_by_others = not _inode_got(descriptor, fcntl.LOCK_SH)
        if held_by_others:
            raise _in_use_as(path, inode)
        yield
    finally:
        os.close(descriptor)


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _inode_got(descriptor: int, how: int) -> bool:
    wanted = _FLOCK.pack(_TYPES[how], os.SEEK_SET, INODE_LOCK, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in _HELD_BY_OTHERS:
            return False
        raise
    return True


def _take(
    path: Path, got: Callable[[int], bool], in_use_by_others: Callable[[], StoreUnusable]
) -> None:
    for _ in range(round(LOOKERS_WITHIN / LOOK_AGAIN)):
        if got(fcntl.LOCK_EX):
            return
        if not got(fcntl.LOCK_SH):  # then somebody has it for itself
            raise in_use_by_others()
        got(fcntl.LOCK_UN)
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
    """Create the file, unless it exists, for its owner alone: who can open it could lock it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path

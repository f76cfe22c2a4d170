"""The lock on a state file: one process at a time may use it. Processes that only read share the
lock, so that no other opens the file meanwhile; a start waits for them.

There are two locks. The one on `.lock` next to the file protects the name, even while the file does
not exist or is being replaced. The one on the file itself protects the inode, which may have other
names (hard links, bind mounts) with other logs next to them, and it holds even if `.lock` was
removed. It is a lock of the open file description (OFD), far beyond the bytes that SQLite locks: a
lock of the process would be lost as soon as any descriptor of the file is closed. SQLite's own
locks are of that kind, so this descriptor is opened before SQLite's and closed after them, and a
process that has the state must not open the file in any other way. Only Linux has such locks;
elsewhere the name alone is protected.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from forewarn.store.port import StoreUnusable
from forewarn.support.files.lock import try_lock, unlock
from forewarn.support.system import ON_LINUX

if ON_LINUX:
    import fcntl

READERS_TIMEOUT = 10.0  # seconds that a start waits for processes that only read the file
RETRY_EVERY = 0.05  # seconds between two tries

# Positions of locked bytes in the file; those of SQLite are part of its format.
INODE_LOCK = 1 << 62
SQLITE_SHARED, SQLITE_SHARED_BYTES = 0x40000002, 510

_FLOCK = struct.Struct("hhqqi")  # struct flock
_HELD_BY_OTHERS = (errno.EAGAIN, errno.EACCES)


class _Mode(enum.Enum):
    EXCLUSIVE = enum.auto()
    SHARED = enum.auto()
    NONE = enum.auto()


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
            raise _inode_in_use_error(path, inode)
        descriptor = os.open(path, os.O_RDWR) if ON_LINUX else None
        try:
            if descriptor is not None:
                _take(
                    path,
                    lambda mode: _lock_inode(descriptor, mode),
                    lambda: _inode_in_use_error(path, inode),
                )
        except BaseException:
            if descriptor is not None:
                os.close(descriptor)
            raise
        self._descriptor, self._inode = descriptor, inode
        _ours[inode] = path

    def close(self) -> None:
        """Release the lock, and remove the name of this process from the lock file."""
        if self._inode is not None:
            del _ours[self._inode]
            self._inode = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        with contextlib.suppress(OSError):
            os.truncate(self._file.fileno(), 0)
        self._file.close()


def companion(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to the state file: its log, index, lock, or a copy."""
    return path.with_name(path.name + suffix)


def take_lock(path: Path) -> Lock:
    """Lock the state file for this process alone. Raises StoreUnusable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _create_private(companion(path, ".lock")).open("a+")
    try:
        _take(path, lambda mode: _lock_file(file, mode), lambda: in_use_error(path, file))
        lock = Lock(file)
        if path.exists():
            lock.take_inode(path)
        return lock
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        raise


@contextlib.contextmanager
def reader_lock(path: Path) -> Iterator[IO[str] | None]:
    """Keep other processes from opening the file while it is read, without writing anything. Yields
    the lock file if a process has the state open already, otherwise None. Raises StoreUnusable if a
    process has it open under another name, because its log lies elsewhere then."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):  # then it is not open under this name
            lock = stack.enter_context(companion(path, ".lock").open("r"))
            if not _lock_file(lock, _Mode.SHARED):
                yield lock
                return
        stack.enter_context(_inode_reader_lock(path))
        yield None


def in_use_error(path: Path, lock: IO[str]) -> StoreUnusable:
    lock.seek(0)
    holder = lock.read().strip() or "another process"
    return StoreUnusable(f"{path} is in use by {holder}; stop that or choose another file")


def _inode_in_use_error(path: Path, inode: tuple[int, int]) -> StoreUnusable:
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
    if not ON_LINUX:
        return "another process", None
    try:
        with path.open("rb") as file:
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, SQLITE_SHARED, SQLITE_SHARED_BYTES, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
    except OSError:
        return "another process", None
    if kind == fcntl.F_UNLCK or pid <= 0:
        return "another process", None
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if _inode(descriptor) == inode:
                    return f"process {pid}", descriptor.readlink()
    return f"process {pid}", None


@contextlib.contextmanager
def _inode_reader_lock(path: Path) -> Iterator[None]:
    try:
        inode = _inode(path)
        if inode in _ours:
            raise _inode_in_use_error(path, inode)
        if not ON_LINUX:
            yield
            return
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # the reader will report it
        yield
        return
    try:
        held_by_others = False
        with contextlib.suppress(OSError):  # a file system may have no locks
            held_by_others = not _lock_inode(descriptor, _Mode.SHARED)
        if held_by_others:
            raise _inode_in_use_error(path, inode)
        yield
    finally:
        os.close(descriptor)


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _lock_inode(descriptor: int, mode: _Mode) -> bool:
    """Lock the inode, or return False if another process has a lock that excludes it."""
    types = {
        _Mode.EXCLUSIVE: fcntl.F_WRLCK,
        _Mode.SHARED: fcntl.F_RDLCK,
        _Mode.NONE: fcntl.F_UNLCK,
    }
    request = _FLOCK.pack(types[mode], os.SEEK_SET, INODE_LOCK, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno in _HELD_BY_OTHERS:
            return False
        raise
    return True


def _take(path: Path, lock: Callable[[_Mode], bool], in_use: Callable[[], StoreUnusable]) -> None:
    """Take an exclusive lock, as soon as processes that only read have released theirs."""
    for _ in range(round(READERS_TIMEOUT / RETRY_EVERY)):
        if lock(_Mode.EXCLUSIVE):
            return
        if not lock(_Mode.SHARED):  # then a process has an exclusive lock
            raise in_use()
        lock(_Mode.NONE)
        threading.Event().wait(RETRY_EVERY)
    raise StoreUnusable(
        f"{path} has been read by another command (forewarn backup --state, config check)"
        f" for more than {READERS_TIMEOUT:g} s; try again when that has finished"
    )


def _lock_file(file: IO[str], mode: _Mode) -> bool:
    try:
        if mode is _Mode.NONE:
            unlock(file.fileno())
            return True
        return try_lock(file.fileno(), shared=mode is _Mode.SHARED)
    except OSError:
        return False


def _create_private(path: Path) -> Path:
    """Create the file, unless it exists, for its owner alone: everyone who can open it can lock
    it."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path

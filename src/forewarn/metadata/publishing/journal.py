"""What a node was told, on its disk: what it shows after a restart, also if control is away.

Messages are appended as they come, and synced before they are confirmed, so that a node never shows
less than it has confirmed. A record is its length, checksums, and the message. Now and then the
file is replaced by a shorter one with the same meaning.

The end of the last record may be missing after a crash: it was not confirmed, and is dropped. If
anything else is wrong, or if the journal is of another host, nothing of it is used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from forewarn.metadata.publishing.messages import (
    Joined,
    News,
    Shown,
    SnapshotEnd,
    SnapshotPart,
    Welcome,
)
from forewarn.support.files.lock import try_lock
from forewarn.support.logs import logger
from forewarn.support.system import sync

FORMAT = 1
FILE = "journal"
LOCK_FILE = f"{FILE}.lock"
LEAST_GROWTH = 1 << 20  # bytes by which a journal grows before it is replaced

_RECORD = struct.Struct(">II")  # length and checksum
_CHECK = struct.Struct(">I")  # checksum of these two, so that a wrong length is noticed
_HEAD = _RECORD.size + _CHECK.size

# Welcome begins what one control process tells.
JournalMessage: TypeAlias = Welcome | SnapshotPart | SnapshotEnd | News | Joined | Shown

log = logger("forewarn")


class JournalInUse(Exception):
    """Another node uses the journal; the message says which file."""


class JournalFailed(OSError):
    """The journal cannot be written; the message says why."""


class _Header(msgspec.Struct, frozen=True):
    format: int
    host: str


class JournalUnusable(Exception):
    """What was told cannot be trusted; the message says why."""


_encode = msgspec.msgpack.Encoder().encode
_header = msgspec.msgpack.Decoder(_Header)
_decoder = msgspec.msgpack.Decoder(JournalMessage)


class Journal:
    def __init__(self, directory: Path, host: str) -> None:
        """Raises JournalInUse, or OSError."""
        self.path = directory / FILE
        self._host = host
        self._lock = _open_lock(directory / LOCK_FILE)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise JournalInUse(f"{self.path} is in use by another node")
        self._using = threading.Lock()  # a thread may still be writing when it is closed
        self._file: int | None = None
        self._closed = False
        self._size = self._base = 0

    def read(self) -> list[JournalMessage]:
        """Return what was told, in this order; nothing if that cannot be trusted."""
        try:
            return read_journal(self.path, self._host)
        except FileNotFoundError:
            return []
        except JournalUnusable as error:
            log.error(
                "the journal of this node cannot be used; nobody is answered before control has"
                " told it everything",
                journal=str(self.path),
                why=str(error),
            )
            return []

    def replace(self, messages: Iterable[JournalMessage]) -> None:
        """Replace the whole journal, durably. Raises JournalFailed."""
        with self._writing():
            if not self._closed:
                self._replace(messages)

    def _replace(self, messages: Iterable[JournalMessage]) -> None:
        new = self.path.with_suffix(".new")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            size = _write(file, _record(_Header(FORMAT, self._host)))
            for message in messages:
                size += _write(file, _record(message))
            os.fsync(file)
            new.rename(self.path)
            sync(self.path.parent)
        except BaseException:
            os.close(file)
            new.unlink(missing_ok=True)  # so that it does not fill the disk
            raise
        if self._file is not None:
            os.close(self._file)
        self._file, self._size, self._base = file, size, size

    def append(self, message: JournalMessage) -> None:
        """Raises JournalFailed, after which it has to be replaced."""
        with self._writing():
            if self._file is not None:
                self._size += _write(self._file, _record(message))

    def sync(self) -> None:
        """Raises JournalFailed, after which it has to be replaced."""
        with self._writing():
            if self._file is not None:
                os.fdatasync(self._file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._using:
            try:
                yield
            except OSError as error:
                raise JournalFailed(f"{self.path}: {error.strerror}") from error

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._size

    @property
    def long(self) -> bool:
        """Whether it should be replaced by a shorter one."""
        return self._size > 2 * self._base + LEAST_GROWTH

    def close(self) -> None:
        with self._using:
            if self._closed:
                return
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None
            os.close(self._lock)


def read_journal(path: Path, host: str) -> list[JournalMessage]:
    """Return what the node of a host was told, also while it is running. Raises JournalUnusable, or
    OSError."""
    records = _records(path.read_bytes())
    try:
        header = _header.decode(next(records, b""))
        if header != _Header(FORMAT, host):
            raise JournalUnusable(f"it is of host '{header.host}', format {header.format}")
        return [_decoder.decode(record) for record in records]
    except msgspec.MsgspecError as error:
        raise JournalUnusable(str(error)) from error


def in_use(directory: Path) -> bool:
    """Return whether a node uses the journal in a directory, as far as it can be seen."""
    try:
        file = os.open(directory / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(file, shared=True)
    finally:
        os.close(file)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY)  # what was told can still be read, and shown


def _record(message: msgspec.Struct) -> bytes:
    data = _encode(message)
    head = _RECORD.pack(len(data), zlib.crc32(data))
    return head + _CHECK.pack(zlib.crc32(head)) + data


def _records(content: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD <= len(content):
        head = content[at : at + _RECORD.size]
        length, checksum = _RECORD.unpack(head)
        if _CHECK.unpack_from(content, at + _RECORD.size) != (zlib.crc32(head),):
            if not content[at:].strip(b"\0"):
                return  # the file had grown, but nothing was written
            raise JournalUnusable(f"the record at byte {at} is damaged")
        data = content[at + _HEAD : at + _HEAD + length]
        if len(data) < length:
            return  # the end is missing
        if zlib.crc32(data) != checksum:
            raise JournalUnusable(f"the record at byte {at} is damaged")
        yield data
        at += _HEAD + length


def _write(file: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    return len(data)

"""What a failed COMMIT means, and how a start makes durable what it finds.

SQLite commits by writing frames into its log, the last of them marked as the commit, and then
syncing the log. If the sync fails, SQLite rolls back in memory, but the frames stand in the file
with valid checksums: after a crash, recovery takes them for a commit. Nor does a later sync that
succeeds prove anything about them, since Linux marks pages as clean when writing them has failed.

So a failed COMMIT has one of two meanings:

- A write has failed: the frame that marks the commit is incomplete. It did not happen, now or
  after a crash. This is the full disk, and the service goes on.
- Anything else, above all a sync: nobody can know. It would be possible to neutralise the frames
  by overwriting them with another commit, but on a disk whose syncs fail that one fails as well,
  so the service would need to stop all the same. It therefore always stops, at once and without
  answering anybody (`OutcomeUnknown`), as PostgreSQL does: a process that is gone is what every
  other part survives already. What the next start finds in the log is what has happened.

That start reads the log from the page cache, which may have pages that are not on disk although
they are clean. Before anything in the log is believed, let alone served or copied into the state
file, it is written once more in place, byte by byte the same, and synced.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from forewarn.store.naming import beside

REWRITE_BYTES = 1024 * 1024  # bytes of the log that are read and written at a time

_WRITE_FAILED = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})


def did_not_happen(error: BaseException | None) -> bool:
    """Whether a COMMIT that failed so has certainly not happened, and will not after a crash."""
    return getattr(error, "sqlite_errorcode", None) in _WRITE_FAILED


def rewrite_log(path: Path) -> bool:
    """Make durable all that can be read of the log. False if there is nothing in it.

    Raises OSError if the disk refuses; nothing has changed then."""
    log = beside(path, "-wal")
    try:
        descriptor = os.open(log, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        offset = 0
        while data := os.pread(descriptor, REWRITE_BYTES, offset):
            offset += _write_all(descriptor, data, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return offset > 0


def _write_all(descriptor: int, data: bytes, offset: int) -> int:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)
    return written

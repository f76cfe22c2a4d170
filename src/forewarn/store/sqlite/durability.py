"""What a failed COMMIT means, and how the log is made durable at a start.

SQLite commits by writing frames into its log, the last of them marked as the commit, and then
syncing the log. If the sync fails, SQLite rolls back in memory, but the frames stand in the file
with valid checksums: after a crash, recovery takes them for a commit. Nor does a later sync that
succeeds prove anything about them, since Linux marks pages as clean when writing them has failed.

So a failed COMMIT has one of two meanings:

- A write has failed, for example because the disk is full: the frame that marks the commit is
  incomplete. The commit did not happen, not even after a crash, and the service goes on.
- Anything else, above all a sync, has failed: the outcome is unknown. The frames could be
  overwritten with another commit, but on a disk whose syncs fail that commit fails as well, so the
  service would have to stop all the same. It therefore always stops, at once and without answering
  anyone (`OutcomeUnknown`), as PostgreSQL does: every other part already survives the death of the
  process. Whatever the next start finds in the log counts as committed.

That start reads the log from the page cache, which may contain pages that are marked clean but are
not on disk. Before the log is used, the same bytes are therefore written in place again and synced.
"""

from __future__ import annotations

import io
import os
import sqlite3
from pathlib import Path

from forewarn.store.sqlite.lock import companion

REWRITE_BYTES = 1024 * 1024  # bytes of the log that are read and written at a time

_WRITE_FAILED = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE})


def had_no_effect(error: BaseException | None) -> bool:
    """Return whether a COMMIT that failed with this error had no effect, even after a crash."""
    return getattr(error, "sqlite_errorcode", None) in _WRITE_FAILED


def rewrite_log(path: Path) -> bool:
    """Make durable everything that can be read from the log. Returns False if it is empty.

    Raises OSError if the disk fails, in which case nothing has changed."""
    log = companion(path, "-wal")
    try:
        file = log.open("r+b", buffering=0)
    except FileNotFoundError:
        return False
    offset = 0
    with file:
        while data := file.read(REWRITE_BYTES):
            file.seek(offset)
            offset += _write_all(file, data)
        os.fsync(file.fileno())
    return offset > 0


def _write_all(file: io.FileIO, data: bytes) -> int:
    written = 0
    while written < len(data):
        written += file.write(data[written:])
    return written

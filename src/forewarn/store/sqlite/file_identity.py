"""The identity of the files of a state, to notice if something else removes or replaces one.

SQLite keeps using the files that it has opened, even if their names now refer to other files. What
it writes to a log that was removed is lost when the process ends.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


class FileIdentity(msgspec.Struct, frozen=True):
    """Device and inode of each file; None for a file that does not exist."""

    state: tuple[int, int] | None
    log: tuple[int, int] | None
    index: tuple[int, int] | None
    # Bytes. SQLite itself makes neither smaller while the state is in use.
    state_size: int = 0
    log_size: int = 0

    @classmethod
    def of(cls, path: Path) -> FileIdentity:
        name = str(path)
        state, log = _status(name), _status(name + "-wal")
        return cls(
            _inode(state), _inode(log), _inode(_status(name + "-shm")), _size(state), _size(log)
        )

    def unchanged(self, now: FileIdentity) -> bool:
        """Return whether these are still the same files, and none was truncated."""
        return self.same_state(now) and (
            (self.log, self.index) == (now.log, now.index)
            and self.state_size <= now.state_size
            and self.log_size <= now.log_size
        )

    def same_state(self, now: FileIdentity) -> bool:
        return self.state == now.state


def _status(name: str) -> os.stat_result | None:
    try:
        return os.stat(name)  # noqa: PTH116 - twice for every write, and a Path takes much longer
    except OSError:
        return None


def _size(status: os.stat_result | None) -> int:
    return 0 if status is None else status.st_size


def _inode(status: os.stat_result | None) -> tuple[int, int] | None:
    return None if status is None else (status.st_dev, status.st_ino)

"""What a loss of power would leave of files: contents that were synced, under names that were."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class PowerCut:
    """Follows what this process syncs from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, int]] = {}  # by the inode of the directory
        for name in ("fsync", "fdatasync"):
            sync = getattr(os, name)

            def recorded(file: int, sync: object = sync) -> None:
                assert callable(sync)
                sync(file)
                self._record(file)

            monkeypatch.setattr(os, name, recorded)

    def _record(self, file: int) -> None:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(file) as entries:
                self._names[status.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._contents[status.st_ino] = Path(f"/proc/self/fd/{file}").read_bytes()

    def left(self, path: Path) -> bytes | None:
        """Return what would be read after a loss of power now; None if nothing is sure."""
        names = self._names.get(path.parent.stat().st_ino, {})
        return self._contents.get(names.get(path.name, 0))

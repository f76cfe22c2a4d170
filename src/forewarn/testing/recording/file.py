"""The file that a recording is kept in: whole lines, each written at once, and gone on with later.

Nothing here knows what the lines say, but that a recording begins with one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from forewarn.testing.recording.reader import is_trace
from forewarn.traces.lines import decode, time_of

_PIECE = 64 * 1024


class RecordingFileError(Exception):
    """The file cannot be used; the message says why, and what to do."""


class RecordingFile:
    """Made for its owner alone: a recording names machines. A line that was torn by a kill is
    taken away when the file is gone on with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RecordingFileError(f"{path}: {error.strerror}") from error
        try:
            self._take_hold()
            self.went_on = self._mend()
            self.last = self._last() if self.went_on else None  # the time of the last line
        except BaseException:
            os.close(self._fd)
            raise

    def _take_hold(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RecordingFileError(
                f"{self.path}: somebody else records there; name another file with -o"
            ) from error

    def _mend(self) -> bool:
        """Is there something to go on with?"""
        size = os.fstat(self._fd).st_size
        if size == 0:
            return False
        if not is_trace(os.pread(self._fd, _PIECE, 0)):
            raise RecordingFileError(
                f"{self.path}: this is no recording; name another file with -o"
            )
        end = size
        while end > 0:
            start = max(0, end - _PIECE)
            found = os.pread(self._fd, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end != size:
            os.ftruncate(self._fd, end)
        return end > 0

    def _last(self) -> float | None:
        """A line longer than what is looked at says nothing, and need not."""
        size = os.fstat(self._fd).st_size
        tail = os.pread(self._fd, _PIECE, max(0, size - _PIECE))
        line = decode(tail.rstrip(b"\n").rpartition(b"\n")[2])
        return None if line is None else time_of(line)

    def write(self, line: Mapping[str, Any]) -> None:
        data = msgspec.json.encode(line) + b"\n"
        before = os.fstat(self._fd).st_size
        try:
            whole = os.write(self._fd, data) == len(data)
        except OSError as error:
            raise RecordingFileError(
                f"{self.path}: {error.strerror}; what was recorded is whole"
            ) from error
        if not whole:
            os.ftruncate(self._fd, before)
            raise RecordingFileError(f"{self.path}: there is no room; what was recorded is whole")
        self.lines += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        os.close(self._fd)

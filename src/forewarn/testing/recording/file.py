"""The file of a recording: complete lines, each written at once, to which later runs append.

Nothing here knows what the lines mean, except that a recording begins with a trace line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from forewarn.support.files.lock import try_lock
from forewarn.testing.recording.reader import is_trace
from forewarn.traces.lines import decode, time_of

_CHUNK = 64 * 1024
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # the last on Windows


class RecordingFileError(Exception):
    """The file cannot be used; the message says why, and what to do."""


class RecordingFile:
    """A recording that is open for appending, locked against other recorders.

    Only its owner can read it, since a recording names machines. An incomplete last line, left by a
    process that was killed, is removed when the file is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        try:
            self._fd = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise RecordingFileError(f"{path}: {error.strerror}") from error
        try:
            self._lock()
            self.appending = self._remove_incomplete_line()
            self.last_time = self._read_last_time() if self.appending else None
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        if not try_lock(self._fd):
            raise RecordingFileError(
                f"{self.path}: another process is recording to this file; choose another with -o"
            )

    def _remove_incomplete_line(self) -> bool:
        """Remove an incomplete last line; return whether the file has any lines to append to."""
        size = os.fstat(self._fd).st_size
        if size == 0:
            return False
        if not is_trace(self._read(0, _CHUNK)):
            raise RecordingFileError(
                f"{self.path}: this is not a recording; choose another file with -o"
            )
        end = size
        while end > 0:
            start = max(0, end - _CHUNK)
            newline = self._read(start, end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != size:
            os.ftruncate(self._fd, end)
        return end > 0

    def _read_last_time(self) -> float | None:
        """Return the time of the last line; None if the line is too long to be read."""
        size = os.fstat(self._fd).st_size
        tail = self._read(max(0, size - _CHUNK), _CHUNK)
        line = decode(tail.rstrip(b"\n").rpartition(b"\n")[2])
        return None if line is None else time_of(line)

    def _read(self, offset: int, size: int) -> bytes:
        os.lseek(self._fd, offset, os.SEEK_SET)  # it is written at its end, wherever that is
        return os.read(self._fd, size)

    def write(self, line: Mapping[str, Any]) -> None:
        data = msgspec.json.encode(line) + b"\n"
        before = os.fstat(self._fd).st_size
        try:
            complete = os.write(self._fd, data) == len(data)
        except OSError as error:
            raise RecordingFileError(
                f"{self.path}: {error.strerror}; what was recorded so far is intact"
            ) from error
        if not complete:
            os.ftruncate(self._fd, before)
            raise RecordingFileError(
                f"{self.path}: no space left; what was recorded so far is intact"
            )
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

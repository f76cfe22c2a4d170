"""Reads recordings in the order of time. Only the positions of lines are kept in memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from forewarn.traces.lines import decode, number
from forewarn.verdict.observer import Observer
from forewarn.verdict.verdict import Verdict

MAX_LINE = 64 * 1024 * 1024  # bytes of one line


class _LineHead(msgspec.Struct):
    t: Any = None
    kind: Any = None


class TraceFiles(msgspec.Struct, frozen=True):
    verdict: Verdict
    exchanges: int
    unreadable: int  # lines


def verdict_of_files(paths: Sequence[Path]) -> TraceFiles:
    """Return the verdict on several recordings together. Raises OSError."""
    observer = Observer()
    positions: list[tuple[float, int, int]] = []
    exchanges = unreadable = 0
    files: list[IO[bytes]] = []
    try:
        for index, path in enumerate(paths):
            files.append(rewindable(path))
            at = 0
            while line := files[index].readline(MAX_LINE):
                head = _read_head(line)
                if head is None:
                    unreadable += bool(line.strip())
                else:
                    exchanges += head.kind == "exchange"
                    positions.append((number(head.t) or 0.0, index, at))
                at += len(line)
        positions.sort()
        for _, index, at in positions:
            files[index].seek(at)
            line_read = decode(files[index].readline(MAX_LINE))
            if line_read is None:
                unreadable += 1  # in a part that was skipped when only the head was read
            else:
                observer.add(line_read)
    finally:
        for file in files:
            file.close()
    return TraceFiles(observer.verdict(), exchanges, unreadable)


def rewindable(path: Path) -> IO[bytes]:
    """Open the file so that it can be read more than once; a pipe is copied first."""
    file = path.open("rb")
    if file.seekable():
        return file
    with file:
        copy = tempfile.TemporaryFile()  # noqa: SIM115, closed by the caller
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


def _read_head(line: bytes) -> _LineHead | None:
    try:
        head = msgspec.json.decode(line, type=_LineHead)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return head if number(head.t) is not None else None

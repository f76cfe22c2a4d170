"""Recordings, heard in the order of time. Only where each line stands is kept, not the lines."""

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


class _When(msgspec.Struct):
    t: Any = None
    kind: Any = None


class TraceFiles(msgspec.Struct, frozen=True):
    verdict: Verdict
    exchanges: int
    unreadable: int  # lines


def hear_files(paths: Sequence[Path]) -> TraceFiles:
    """What several recordings tell together. Raises OSError for a file that cannot be read."""
    observer = Observer()
    places: list[tuple[float, int, int]] = []
    exchanges = unreadable = 0
    files: list[IO[bytes]] = []
    try:
        for index, path in enumerate(paths):
            files.append(rewindable(path))
            at = 0
            while line := files[index].readline(MAX_LINE):
                when = _when(line)
                if when is None:
                    unreadable += bool(line.strip())
                else:
                    exchanges += when.kind == "exchange"
                    places.append((number(when.t) or 0.0, index, at))
                at += len(line)
        places.sort()
        for _, index, at in places:
            files[index].seek(at)
            line_read = decode(files[index].readline(MAX_LINE))
            if line_read is None:
                unreadable += 1  # in parts that were skipped when only the time was read
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
        copy = tempfile.TemporaryFile()  # noqa: SIM115, closed by whoever asked for it
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


def _when(line: bytes) -> _When | None:
    try:
        found = msgspec.json.decode(line, type=_When)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if number(found.t) is not None else None

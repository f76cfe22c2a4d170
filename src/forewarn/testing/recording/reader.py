"""Reads recordings: traces, or documents as JSON.

The result is trace lines. Assumptions about documents are in the notes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from forewarn.support.text import counted
from forewarn.testing.recording.json_documents import MAX_TEXT, read_documents
from forewarn.traces.lines import decode, time_of

MAX_RECORDING = 256 * 1024 * 1024  # bytes of a trace
HEAD = 64 * 1024  # bytes at the beginning that decide what a file is


class NotARecordingError(Exception):
    """Neither a trace nor documents as JSON; the message says why."""


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Trace lines in the order of time; `unreadable` is the number of lines that were skipped."""

    lines: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()
    unreadable: int = 0


def read(paths: Sequence[Path]) -> Recording:
    """Read several files, each of either form, as one recording. Raises OSError."""
    recordings = [_file(path) for path in paths]
    return Recording(
        lines=tuple(_in_order([line for recording in recordings for line in recording.lines])),
        notes=tuple(note for recording in recordings for note in recording.notes),
        unreadable=sum(recording.unreadable for recording in recordings),
    )


def _file(path: Path) -> Recording:
    with path.open("rb") as file:
        head = file.read(HEAD)
        limit = MAX_RECORDING if is_trace(head) else MAX_TEXT
        data = head + file.read(limit + 1 - len(head))
    if len(data) > limit:
        subject = "a recording" if limit == MAX_RECORDING else "a file with documents"
        raise NotARecordingError(
            f"{path}: {subject} has at most {limit:,} bytes; take a part of it"
        )
    try:
        return read_data(data)
    except NotARecordingError as error:
        raise NotARecordingError(f"{path}: {error}") from error


def read_documents_file(file: IO[bytes]) -> Recording | None:
    """Return the documents in a file as trace lines, and rewind the file. None for anything else
    than documents as JSON."""
    head = file.read(HEAD)
    data = b"" if is_trace(head) else head + file.read(MAX_TEXT + 1 - len(head))
    file.seek(0)
    if data and len(data) <= MAX_TEXT:
        with suppress(NotARecordingError):
            return read_data(data)
    return None


def read_text(text: str) -> Recording:
    return read_data(text.encode("utf-8", "surrogatepass"))


def read_data(data: bytes) -> Recording:
    if is_trace(data[:HEAD]):
        return _trace(data)
    try:
        documents = read_documents(data.decode("utf-8", "replace"))
    except ValueError as error:
        raise NotARecordingError(f"it is neither a trace nor documents as JSON: {error}") from error
    return Recording(lines=documents.lines, notes=documents.notes)


def is_trace(head: bytes) -> bool:
    """Return whether these bytes begin like a trace, possibly after an incomplete first line."""
    for line in head.splitlines()[:2]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if b'{"kind":"' in line[:16].replace(b" ", b""):  # the line is longer than `head`
                return True
            continue
        if isinstance(value, dict) and isinstance(value.get("kind"), str) and "t" in value:
            return True
    return False


def _trace(data: bytes) -> Recording:
    lines: list[Mapping[str, Any]] = []
    unreadable = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        value = decode(line)
        if value is None:
            unreadable += 1
        else:
            lines.append(value)
    notes = (f"{counted(unreadable, 'line')} could not be read",) if unreadable > 1 else ()
    return Recording(lines=tuple(_in_order(lines)), notes=notes, unreadable=unreadable)


def _in_order(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    timed = [(t, line) for line in lines if (t := time_of(line)) is not None]
    return [line for _, line in sorted(timed, key=lambda pair: pair[0])]

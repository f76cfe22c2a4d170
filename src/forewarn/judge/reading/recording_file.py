"""Reads the lines of a recording, and finds whether its beginning or its end is missing.

A service or a node writes `up` when it begins and `down` when it stops. What it has written before
the one or after the other was cut off; who else records may begin and end at any time.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class Torn(bytes):
    """An incomplete line at an end of a recording that was cut off there."""


class TornFirst(bytes):
    """An incomplete line at the beginning of any other recording."""


class _Recorder:
    """A service or a node, as far as its recording shows when it was running."""

    def __init__(self, host: str | None, first: object) -> None:
        self._host = host
        self._first = self._last = first  # times of lines
        # When it first wrote everything that was valid; of a node, whether it was disconnected.
        self._stated: object = None
        self._beheaded = False
        self.running = False

    def read(self, record: Mapping[object, object]) -> None:
        kind, self._last = record.get("kind"), record.get("t")
        if kind in ("up", "down", "end"):
            self.running = kind == "up"
        if self._stated is not None:
            return
        if kind in ("up", "disconnected", "joined"):
            self._stated = self._last
        elif kind == "event" or self._host is not None:
            # Only they record the time of their own clock with these.
            self._beheaded = self._beheaded or record.get("real") is not None

    @property
    def cut_off(self) -> bool:
        return self.running or self._beheaded

    def gaps(self) -> Iterator[dict[str, object]]:
        if self._beheaded:
            gap = {"kind": "gap", "t": self._first, "stated": self._stated, "host": self._host}
            yield {**gap, "beginning": True}
        if self.running:
            yield {"kind": "gap", "t": self._last, "host": self._host}


def read_files(paths: Iterable[Path]) -> Iterator[object]:
    """Yield the records of all files; a line that is not JSON is yielded as bytes."""
    for path in paths:
        with path.open("rb") as lines:
            yield from read_recording(lines)


def read_recording(lines: Iterable[bytes]) -> Iterator[object]:
    """Yield the records of one recording; a line that is not JSON is yielded as bytes. The last
    ones are gaps, where it was cut off."""
    recorders: dict[str | None, _Recorder] = {}  # by host
    first: bytes | None = None
    last: object = None
    for number, record in enumerate(_records(lines)):
        if isinstance(last, bytes):
            yield last
        last = record
        if isinstance(record, bytes):
            if number == 0:
                first, last = record, None
            continue
        yield record
        if isinstance(record, Mapping) and isinstance(host := record.get("host"), str | None):
            if host not in recorders:
                recorders[host] = _Recorder(host, record.get("t"))
            recorders[host].read(record)
            if record.get("kind") == "end" and host is None:
                for recorder in recorders.values():
                    recorder.running = False
    cut_off = any(recorder.cut_off for recorder in recorders.values())
    if first is not None:
        yield Torn(first) if cut_off else TornFirst(first)
    if isinstance(last, bytes):
        yield Torn(last) if cut_off else last
    for recorder in recorders.values():
        yield from recorder.gaps()


def _records(lines: Iterable[bytes]) -> Iterator[object]:
    for line in lines:
        if line.isspace():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            yield line

"""Documents that are given as JSON, one after the other or in lists, as trace lines.

JSON does not say when a document was seen. That is assumed, from what the endpoint promises about
its events; every assumption is in the notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import SECOND
from forewarn.testing.recording.documents import (
    RecordedDocument,
    compact,
    matching_version,
    recorded_document_of,
)
from forewarn.testing.recording.event_lives import REFORMATTED
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.versions import NEWEST

MAX_TEXT = 16 * 1024 * 1024  # bytes of a text
SPACING = 60.0  # seconds between documents whose events say nothing about time
DEFAULT_START = 1_800_000_000.0  # time of the first document if its events say nothing either
_SPACE = " \t\r\n\ufeff"


class Documents(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def read_documents(text: str) -> Documents:
    """Return all documents in a text as trace lines. Raises ValueError if there is anything else
    in it, or nothing."""
    notes: list[str] = []
    lines: list[Mapping[str, Any]] = []
    times = _Times()
    for number, (line, value) in enumerate(_values(text), 1):
        document = recorded_document_of(value)
        if document is None:
            raise ValueError(f"line {line}: not a document with Events, as the endpoint returns it")
        t, assumption = times.next(document)
        name = f"document {number} (line {line})"
        notes += [f"{name}: {flaw}; ignored" for flaw in document.flaws]
        notes.append(f"{name}: when it was seen is not known; {assumption}")
        version = matching_version(value)
        if version is None:
            notes.append(f"{name}: its keys do not match any api-version, so it is not checked")
        lines.append(
            {
                "kind": "exchange",
                "t": t,
                "method": "GET",
                "target": f"{EVENTS_PATH}?api-version={(version or NEWEST).name}",
                "headers": [["Metadata", "true"]],
                "status": 200,
                "answer": compact(value),
                **({"fault": REFORMATTED} if version is None else {}),
            }
        )
    if not lines:
        raise ValueError("it is empty")
    return Documents(lines=({"kind": "partial", "t": lines[0]["t"]}, *lines), notes=tuple(notes))


def _values(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each JSON value and the line that it begins on; those in a list one by one."""
    decoder = json.JSONDecoder()
    at, line = 0, 1
    while (start := len(text) - len(text[at:].lstrip(_SPACE))) < len(text):
        line += text.count("\n", at, start)
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from error
        except RecursionError:
            raise ValueError(f"line {line}: not JSON: nested too deeply") from None
        for item in value if isinstance(value, list) else (value,):
            yield line, item
        line += text.count("\n", start, end)
        at = end


class _Times:
    """When each of several documents was seen, by assumption."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._due: dict[str, float] = {}  # NotBefore of events that were Scheduled

    def next(self, document: RecordedDocument) -> tuple[float, str]:
        t, assumption = self._assume(document)
        # Its events were not due yet, and it was not seen before the last one.
        earliest = 0.0 if self._last is None else self._last + 1
        due = {e.id: e.not_before for e in document.events if e.not_before is not None}
        latest = min((time - 1 for time in due.values()), default=t)
        if earliest <= latest:
            t = min(t, latest)
        self._last = t
        self._due |= due
        return t, assumption

    def _assume(self, document: RecordedDocument) -> tuple[float, str]:
        earliest = 0.0 if self._last is None else self._last + 1
        announced = [
            event.not_before - EventType(event.type).traits.notice / SECOND
            for event in document.events
            if event.not_before is not None and event.id not in self._due
        ]
        started = [
            self._due[event.id]
            for event in document.events
            if event.status == "Started" and event.id in self._due
        ]
        if announced and min(announced) >= earliest:
            return min(announced), "assuming the minimum notice of its type"
        if started and max(started) >= earliest:
            return max(started), "assuming that it started at its NotBefore"
        if self._last is None:
            return DEFAULT_START, "assuming any time"
        return self._last + SPACING, f"assuming {SPACING:g} s after the previous one"

"""Documents that were pasted into a text, as trace lines.

Their order and times are taken from the text or, failing that, assumed; every assumption is in the
notes. `find_documents.py` finds documents, `log_times.py` their times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import SECOND
from forewarn.testing.recording.documents import RecordedDocument, compact, matching_version
from forewarn.testing.recording.event_lives import PASTED
from forewarn.testing.recording.find_documents import FoundDocument, find_documents
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.versions import NEWEST

MAX_TEXT = 16 * 1024 * 1024  # bytes of a text
SPACING = 60.0  # seconds between documents without times
DEFAULT_START = 1_800_000_000.0  # time of the first document of a text without times


class Pasted(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def read_pasted(text: str) -> Pasted:
    """Return all documents in a text as trace lines. Never raises, whatever the text."""
    notes: list[str] = []
    documents = find_documents(text, notes)
    documents = _sort_documents(documents, notes)
    _set_missing_times(documents, notes)
    lines: list[Mapping[str, Any]] = []
    if documents:
        lines.append({"kind": "partial", "t": documents[0].t})
    lines += [_exchange(item, notes) for item in documents]
    return Pasted(lines=tuple(lines), notes=tuple(dict.fromkeys(notes)))


def _sort_documents(documents: Sequence[FoundDocument], notes: list[str]) -> list[FoundDocument]:
    """Sort documents by their times or, if none has one, by their incarnations if they differ."""
    if len(documents) > 1 and all(item.t is not None for item in documents):
        return sorted(documents, key=lambda item: item.t or 0.0)
    numbers = [item.document.incarnation for item in documents]
    known_numbers = [number for number in numbers if number is not None]
    if any(item.t is not None for item in documents) or len(known_numbers) != len(documents):
        return list(documents)
    if len(set(known_numbers)) == len(known_numbers) and known_numbers != sorted(known_numbers):
        notes.append("the text has no times, so documents are in the order of their incarnation")
        return sorted(documents, key=lambda item: item.document.incarnation or 0)
    return list(documents)


def _set_missing_times(documents: Sequence[FoundDocument], notes: list[str]) -> None:
    """Give a time to each document that has none, not before the one before it."""
    last: float | None = None
    due: dict[str, float] = {}  # NotBefore, of events that were Scheduled
    for index, item in enumerate(documents):
        later = next(
            (next_item.t for next_item in documents[index:] if next_item.t is not None), None
        )
        if item.t is None or (last is not None and item.t < last):
            item.t, assumption = _assume_time(item.document, last, later, due)
            item.stated = False
            notes.append(
                f"line {item.line}: the text does not say when the document was seen; {assumption}"
            )
        last = item.t
        for event in item.document.events:
            if event.not_before is not None:
                due[event.id] = event.not_before


def _assume_time(
    document: RecordedDocument, last: float | None, later: float | None, due: Mapping[str, float]
) -> tuple[float, str]:
    new_events = [
        event for event in document.events if event.not_before is not None and event.id not in due
    ]
    earliest = 0.0 if last is None else last + 1
    announced = [
        (event.not_before or 0) - EventType(event.type).traits.notice / SECOND
        for event in new_events
    ]
    started = [
        due[event.id] for event in document.events if event.status == "Started" and event.id in due
    ]
    if announced and min(announced) >= earliest:
        t, assumption = min(announced), "assuming the minimum notice of its type"
    elif started and max(started) >= earliest:
        t, assumption = max(started), "assuming that it started at its NotBefore"
    elif last is None:
        t, assumption = (
            (later or DEFAULT_START + SPACING) - SPACING,
            "assuming that it is the first",
        )
    else:
        t, assumption = last + SPACING, f"assuming {SPACING:g} s after the previous one"
    latest = min([*([later] if later is not None else []), *_deadlines(document)], default=t)
    if earliest <= latest < t:
        return latest, assumption
    return t, assumption


def _deadlines(document: RecordedDocument) -> list[float]:
    """Return times before which the document was seen, since its events were not due yet."""
    return [e.not_before - 1.0 for e in document.events if e.not_before is not None]


def _exchange(item: FoundDocument, notes: list[str]) -> Mapping[str, Any]:
    version = matching_version(item.value)
    if version is None:
        notes.append(
            f"line {item.line}: its keys do not match any api-version, so it is not checked"
        )
    return {
        "kind": "exchange",
        "t": item.t,
        **({"asked": item.t} if item.stated else {}),
        "method": "GET",
        "target": f"{EVENTS_PATH}?api-version={(version or NEWEST).name}",
        "headers": [["Metadata", "true"]],
        "status": 200,
        "answer": compact(item.value),
        **({"fault": PASTED} if version is None else {}),
    }

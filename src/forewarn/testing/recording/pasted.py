"""Documents that were pasted into a text, as trace lines.

Their order and times are taken from the text or, failing that, assumed; every assumption is in the
notes. How documents are found is `find_documents.py`, how their times are `log_times.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import SECOND
from forewarn.testing.recording.documents import RecordedDocument, compact, fitting
from forewarn.testing.recording.event_lives import PASTED
from forewarn.testing.recording.find_documents import FoundDocument, find_documents
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.versions import NEWEST

MAX_TEXT = 16 * 1024 * 1024  # bytes of a text that is looked through
SPACING = 60.0  # seconds between documents of which nothing else is known
SOMETIME = 1_800_000_000.0  # where a text that knows no time at all begins


class Pasted(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def read_pasted(text: str) -> Pasted:
    """Return all documents in a text as trace lines. Never raises, whatever the text."""
    notes: list[str] = []
    documents = find_documents(text, notes)
    documents = _ordered(documents, notes)
    _dated(documents, notes)
    lines: list[Mapping[str, Any]] = []
    if documents:
        lines.append({"kind": "partial", "t": documents[0].t})
    lines += [_exchange(item, notes) for item in documents]
    return Pasted(lines=tuple(lines), notes=tuple(dict.fromkeys(notes)))


def _ordered(documents: Sequence[FoundDocument], notes: list[str]) -> list[FoundDocument]:
    """Sort documents by their times or, if none has one, by their incarnations if they differ."""
    if len(documents) > 1 and all(item.t is not None for item in documents):
        return sorted(documents, key=lambda item: item.t or 0.0)
    numbers = [item.document.incarnation for item in documents]
    known = [number for number in numbers if number is not None]
    if any(item.t is not None for item in documents) or len(known) != len(documents):
        return list(documents)
    if len(set(known)) == len(known) and known != sorted(known):
        notes.append("the text has no times, so documents are in the order of their incarnation")
        return sorted(documents, key=lambda item: item.document.incarnation or 0)
    return list(documents)


def _dated(documents: Sequence[FoundDocument], notes: list[str]) -> None:
    """Give a time to each document that has none, not before the one before it."""
    last: float | None = None
    due: dict[str, float] = {}  # NotBefore, of events that were Scheduled
    for index, item in enumerate(documents):
        later = next((other.t for other in documents[index:] if other.t is not None), None)
        if item.t is None or (last is not None and item.t < last):
            item.t, why = _assumed(item.document, last, later, due)
            item.stated = False
            notes.append(f"line {item.line}: the text does not say when it was seen; {why}")
        last = item.t
        for event in item.document.events:
            if event.not_before is not None:
                due[event.id] = event.not_before


def _assumed(
    document: RecordedDocument, last: float | None, later: float | None, due: Mapping[str, float]
) -> tuple[float, str]:
    fresh = [e for e in document.events if e.not_before is not None and e.id not in due]
    soonest = 0.0 if last is None else last + 1
    announced = [(e.not_before or 0) - EventType(e.type).traits.notice / SECOND for e in fresh]
    begun = [due[e.id] for e in document.events if e.status == "Started" and e.id in due]
    if announced and min(announced) >= soonest:
        t, why = min(announced), "it is taken to be as long before NotBefore as is promised"
    elif begun and max(begun) >= soonest:
        t, why = max(begun), "what has started is taken to have done so at its NotBefore"
    elif last is None:
        t, why = (later or SOMETIME + SPACING) - SPACING, "it is taken to be the first"
    else:
        t, why = last + SPACING, f"it is taken to be {SPACING:g} s after the one before"
    latest = min([*([later] if later is not None else []), *_deadlines(document)], default=t)
    if soonest <= latest < t:
        return latest, why
    return t, why


def _deadlines(document: RecordedDocument) -> list[float]:
    """Return times before which the document was seen, since its events were not due yet."""
    return [e.not_before - 1.0 for e in document.events if e.not_before is not None]


def _exchange(item: FoundDocument, notes: list[str]) -> Mapping[str, Any]:
    version = fitting(item.value)
    if version is None:
        notes.append(f"line {item.line}: its keys are those of no api-version, so it is not judged")
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

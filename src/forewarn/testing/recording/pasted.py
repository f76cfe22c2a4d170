"""Documents that were pasted into a text, as trace lines: in an order and at times that are taken
from the text or, failing that, assumed. Every assumption is in the notes.

How they are found is `find_documents.py`, how their times are `log_times.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core.events import EventType
from forewarn.core.time import SECOND
from forewarn.testing.recording.documents import RecordedDocument, compact, fitting
from forewarn.testing.recording.event_lives import PASTED
from forewarn.testing.recording.find_documents import FoundDocument, searched
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.versions import NEWEST

MAX_TEXT = 16 * 1024 * 1024  # bytes of a text that is looked through
SPACING = 60.0  # seconds between documents of which nothing else is known
SOMETIME = 1_800_000_000.0  # where a text that knows no time at all begins


class Pasted(msgspec.Struct, frozen=True, kw_only=True):
    lines: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]


def pasted(text: str) -> Pasted:
    """All documents in a text, as trace lines. Never raises, whatever the text."""
    notes: list[str] = []
    found = searched(text, notes)
    found = _ordered(found, notes)
    _dated(found, notes)
    lines: list[Mapping[str, Any]] = []
    if found:
        lines.append({"kind": "partial", "t": found[0].t})
    lines += [_exchange(one, notes) for one in found]
    return Pasted(lines=tuple(lines), notes=tuple(dict.fromkeys(notes)))


def _ordered(found: Sequence[FoundDocument], notes: list[str]) -> list[FoundDocument]:
    """By the times that are said; where none is, by the incarnation if that tells them apart."""
    if len(found) > 1 and all(one.t is not None for one in found):
        return sorted(found, key=lambda one: one.t or 0.0)
    numbers = [one.document.incarnation for one in found]
    known = [number for number in numbers if number is not None]
    if any(one.t is not None for one in found) or len(known) != len(found):
        return list(found)
    if len(set(known)) == len(known) and known != sorted(known):
        notes.append("no times stand there, so documents are in the order of their incarnation")
        return sorted(found, key=lambda one: one.document.incarnation or 0)
    return list(found)


def _dated(found: Sequence[FoundDocument], notes: list[str]) -> None:
    """A time for each that has none, no sooner than the one before it."""
    last: float | None = None
    due: dict[str, float] = {}  # NotBefore, of events that were Scheduled
    for index, one in enumerate(found):
        later = next((other.t for other in found[index:] if other.t is not None), None)
        if one.t is None or (last is not None and one.t < last):
            one.t, why = _assumed(one.document, last, later, due)
            one.stated = False
            notes.append(f"line {one.line}: when it was seen is not said; {why}")
        last = one.t
        for event in one.document.events:
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
    """What is still Scheduled was seen before it was due."""
    return [e.not_before - 1.0 for e in document.events if e.not_before is not None]


def _exchange(one: FoundDocument, notes: list[str]) -> Mapping[str, Any]:
    version = fitting(one.value)
    if version is None:
        notes.append(f"line {one.line}: its keys are those of no api-version, so it is not judged")
    return {
        "kind": "exchange",
        "t": one.t,
        **({"asked": one.t} if one.stated else {}),
        "method": "GET",
        "target": f"{EVENTS_PATH}?api-version={(version or NEWEST).name}",
        "headers": [["Metadata", "true"]],
        "status": 200,
        "answer": compact(one.value),
        **({"fault": PASTED} if version is None else {}),
    }

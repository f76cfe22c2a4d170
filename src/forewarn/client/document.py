"""A document off an answer's body, whatever shape the service is in that day.

More is understood than should be sent: control characters in strings (which are taken out), both
forms of a time, keys nobody knows, text that says it is no JSON. What is no document is never taken
for an empty one.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from forewarn.client.events import SCHEDULED, Document, Event, moment
from forewarn.wire.times import parse_iso8601, parse_rfc1123

BOM = b"\xef\xbb\xbf"
MAX_DURATION = 1_000_000_000  # seconds of impact; who says more does not know
_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")  # in no name and no id
_BINARY = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")  # in no text for people


class NotADocument(ValueError):
    """The message says what it is instead, in a few words."""


def read(body: bytes) -> Document:
    body = body.removeprefix(BOM).strip()
    if not body:
        raise NotADocument("an empty body")
    said = _parsed(body)
    if not isinstance(said, dict):
        raise NotADocument("JSON, but no document")
    events = said.get("Events")
    if not isinstance(events, list):
        raise NotADocument("a document without Events")
    number = said.get("DocumentIncarnation")
    return Document(
        number if isinstance(number, int) and not isinstance(number, bool) else None,
        tuple(_event(entry) for entry in events),
    )


def _parsed(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise NotADocument("text that is no JSON, or not all of it") from error


def _event(entry: Any) -> Event:
    """An entry that cannot be told from others spoils the document: what it was about would be
    taken for over."""
    if not isinstance(entry, dict):
        raise NotADocument("an event that is none")
    id, kind, status = (_name(entry.get(key)) for key in ("EventId", "EventType", "EventStatus"))
    if not (id and kind and status):
        raise NotADocument("an event without EventId, EventType or EventStatus")
    status = SCHEDULED if status.lower() == SCHEDULED.lower() else status
    named = entry.get("Resources")
    resources = named if isinstance(named, list) else []
    seconds = entry.get("DurationInSeconds")
    known = type(seconds) is int and 0 <= seconds <= MAX_DURATION
    due = _time(_name(entry.get("NotBefore"))) if status == SCHEDULED else None
    return Event(
        id=id,
        type=kind,
        status=status,
        resources=tuple(filter(None, map(_name, resources))),
        not_before=due,
        description=_BINARY.sub("", _text(entry.get("Description"))),
        source=_name(entry.get("EventSource")),
        duration=seconds if known else None,
    )


def _text(value: Any) -> str:
    """What can be written again: JSON may hold halves of characters."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _name(value: Any) -> str:
    return _CONTROL.sub("", _text(value)).strip()


def _time(text: str) -> datetime | None:
    for parse in (parse_rfc1123, parse_iso8601):
        try:
            return moment(parse(text))
        except (ValueError, OverflowError):
            continue
    try:
        other = datetime.fromisoformat(text)  # with a fraction, or another zone
    except ValueError:
        return None
    try:
        return other.astimezone(UTC) if other.tzinfo else other.replace(tzinfo=UTC)
    except OverflowError:
        return None

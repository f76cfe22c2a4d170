"""A document off an answer's body, whatever shape the service is in that day.

More is understood than should be sent: control characters in strings, both forms of a time, keys
nobody knows, text that says it is no JSON. What is no document is never taken for an empty one.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from forewarn.client.events import Document, Event, moment
from forewarn.wire.times import parse_iso8601, parse_rfc1123

BOM = b"\xef\xbb\xbf"


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
    id, type, status = (_text(entry, key) for key in ("EventId", "EventType", "EventStatus"))
    if not (id and type and status):
        raise NotADocument("an event without EventId, EventType or EventStatus")
    named = entry.get("Resources")
    resources = named if isinstance(named, list) else []
    seconds = entry.get("DurationInSeconds")
    known = isinstance(seconds, int) and not isinstance(seconds, bool) and seconds >= 0
    return Event(
        id=id,
        type=type,
        status=status,
        resources=tuple(name for name in resources if isinstance(name, str)),
        not_before=_time(_text(entry, "NotBefore")),
        description=_text(entry, "Description"),
        source=_text(entry, "EventSource"),
        duration=seconds if known else None,
    )


def _text(entry: dict[Any, Any], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _time(text: str) -> Any:
    for parse in (parse_rfc1123, parse_iso8601):
        try:
            return moment(parse(text))
        except (ValueError, OverflowError, OSError):
            continue
    return None

"""Parses the document in the body of an answer, leniently.

It accepts what the service should not send, but does: control characters in strings (which are
removed), both formats of a time, unknown keys, JSON with a wrong content type. A body that is not a
document is never taken for an empty document.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from forewarn.client.events import SCHEDULED, Document, Event, from_timestamp
from forewarn.wire.times import parse_iso8601, parse_rfc1123

BOM = b"\xef\xbb\xbf"
MAX_DURATION = 1_000_000_000  # seconds of impact; more is taken for unknown
_CONTROL = re.compile("[\\x00-\\x1f\\x7f]")  # not in names and IDs
_BINARY = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")  # not in text for people


class NotADocument(ValueError):
    """The body is not a document; the message says in a few words what it is."""


def parse_document(body: bytes) -> Document:
    """Raises NotADocument."""
    body = body.removeprefix(BOM).strip()
    if not body:
        raise NotADocument("an empty body")
    content = _decode(body)
    if not isinstance(content, dict):
        raise NotADocument("JSON that is not a document")
    events = content.get("Events")
    if not isinstance(events, list):
        raise NotADocument("a document without Events")
    incarnation = content.get("DocumentIncarnation")
    valid = isinstance(incarnation, int) and not isinstance(incarnation, bool)
    return Document(incarnation if valid else None, tuple(_parse_event(entry) for entry in events))


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        return json.loads(body.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError) as error:
        raise NotADocument("text that is not JSON, or incomplete") from error


def _parse_event(entry: Any) -> Event:
    """Parse an entry of Events. One that cannot be identified makes the whole document invalid,
    because the event would otherwise count as over."""
    if not isinstance(entry, dict):
        raise NotADocument("an event that is not an object")
    id, kind, status = (_name(entry.get(key)) for key in ("EventId", "EventType", "EventStatus"))
    if not (id and kind and status):
        raise NotADocument("an event without EventId, EventType or EventStatus")
    status = SCHEDULED if status.lower() == SCHEDULED.lower() else status
    resources = entry.get("Resources")
    names = map(_name, resources) if isinstance(resources, list) else ()
    duration = entry.get("DurationInSeconds")
    known = type(duration) is int and 0 <= duration <= MAX_DURATION
    return Event(
        id=id,
        type=kind,
        status=status,
        resources=tuple(filter(None, names)),
        not_before=_parse_time(_name(entry.get("NotBefore"))) if status == SCHEDULED else None,
        description=_BINARY.sub("", _text(entry.get("Description"))),
        source=_name(entry.get("EventSource")),
        duration=duration if known else None,
    )


def _text(value: Any) -> str:
    """Return text that can be encoded again: JSON may hold lone surrogates."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _name(value: Any) -> str:
    return _CONTROL.sub("", _text(value)).strip()


def _parse_time(text: str) -> datetime | None:
    for parse in (parse_rfc1123, parse_iso8601):
        try:
            return from_timestamp(parse(text))
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

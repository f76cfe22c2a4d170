"""Lines of a trace, read leniently: whatever is not as it should be is left out, never an error.

A trace may come from anybody and from a torn file; who was right is for the judge to say.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from forewarn.testing.timeline.values import MAX_DOCUMENT, MAX_NAME, MAX_RESOURCES
from forewarn.verdict.trace_lines import number
from forewarn.wire.requests import read_approval
from forewarn.wire.times import parse_iso8601, parse_rfc1123
from forewarn.wire.versions import BY_NAME, NEWEST, Version

LAST = 253_402_300_799.0  # the end of the year 9999, beyond which no calendar goes
DOCUMENT, WAIT, READY = "/metadata/scheduledevents", "/forewarn/v1/wait", "/forewarn/v1/ready/"


class ShownEvent(msgspec.Struct, frozen=True):
    """One event in a document."""

    id: str
    type: str
    status: str
    source: str
    resources: tuple[str, ...]
    not_before: float | None


def moment(value: object) -> float | None:
    """A time that a calendar has, or None."""
    found = number(value)
    return found if found is not None and 0 <= found <= LAST else None


def word(value: object) -> str:
    return whole(value[:MAX_NAME]) if isinstance(value, str) else ""


def whole(text: str) -> str:
    """Without half characters: JSON may hold them, and no file or terminal takes them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def words(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(dict.fromkeys(word(name) for name in value[:MAX_RESOURCES] if word(name)))


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def content(line: Mapping[str, Any], key: str) -> bytes:
    """A body, whichever way it was written down; empty if there is none, or far too much."""
    plain = line.get(key)
    if isinstance(plain, str) and len(plain) <= MAX_DOCUMENT:
        return plain.encode("utf-8", "surrogatepass")
    coded = line.get(f"{key}_base64")
    if isinstance(coded, str) and len(coded) <= MAX_DOCUMENT:
        try:
            return base64.b64decode(coded, validate=True)
        except (binascii.Error, ValueError):
            return b""
    return b""


def place(target: object) -> tuple[str, Version]:
    """The path that was asked for, and the version: of a document, what it can show."""
    path, _, query = target[:MAX_DOCUMENT].partition("?") if isinstance(target, str) else ("",) * 3
    named = dict(parse_qsl(query[:2_000], keep_blank_values=True)).get("api-version", "")
    return path.removesuffix("/").lower()[:MAX_NAME], BY_NAME.get(named, NEWEST)


def approvals(body: bytes) -> tuple[str, ...]:
    found = read_approval(body)
    ids = found if isinstance(found, tuple) else ()
    return tuple(dict.fromkeys(id[:MAX_NAME] for id in ids[:MAX_RESOURCES]))


def document(answer: bytes) -> tuple[ShownEvent, ...] | None:
    """The events in it, or None if this is no document."""
    try:
        said = msgspec.json.decode(answer)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    events = said.get("Events") if isinstance(said, dict) else None
    if not isinstance(events, list):
        return None
    return tuple(found for event in events[:MAX_RESOURCES] if (found := _shown(event)))


def _shown(event: object) -> ShownEvent | None:
    said = mapping(event)
    id = word(said.get("EventId")).upper()
    if not id:
        return None
    return ShownEvent(
        id=id,
        type=word(said.get("EventType")),
        status=word(said.get("EventStatus")),
        source=word(said.get("EventSource")),
        resources=words(said.get("Resources")),
        not_before=_time(said.get("NotBefore")),
    )


def _time(text: object) -> float | None:
    for parse in (parse_rfc1123, parse_iso8601):
        try:
            return moment(parse(text)) if isinstance(text, str) else None
        except (ValueError, OverflowError, OSError):
            continue
    return None

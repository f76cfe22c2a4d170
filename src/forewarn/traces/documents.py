"""Reads documents leniently: of any version and any service, as clients got them.

What cannot be read is left out or noted as a flaw; nothing here raises. `wire.document` defines the
correct form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.traces.lines import MAX_RESOURCES, instant, name, number, printable
from forewarn.wire.times import parse_iso8601, parse_rfc1123
from forewarn.wire.versions import TYPE_NAMES, Version

STATUSES = ("Scheduled", "Started")
MAX_LISTED = 10_000  # events of one document that are read
MAX_TEXT = 10_000  # characters of a description that are read
MAX_SHOWN = 40  # characters of a value in a flaw
_BOM = b"\xef\xbb\xbf"


class ListedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a document; `flaw` says what is wrong with it, if anything."""

    id: str  # in upper case
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: float | None
    source: str
    seconds: float | None
    description: str | None
    flaw: str


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read of a document; `flaws` describe entries that are not events."""

    incarnation: int | None
    events: tuple[ListedEvent, ...]
    flaws: tuple[str, ...]


def read_document(body: bytes | str, version: Version | None = None) -> ReadDocument | None:
    """Read the document in a response; return None if it is not one."""
    try:
        data = body.removeprefix(_BOM) if isinstance(body, bytes) else body
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return document_of(value, version)


def document_of(value: Any, version: Version | None = None) -> ReadDocument | None:
    """Read a document from parsed JSON.

    A preview version puts an underscore before names, which is removed. If the version is not
    known, the form of NotBefore tells a preview.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("Events"), list):
        return None
    flaws: list[str] = []
    events: list[ListedEvent] = []
    for entry in value["Events"][:MAX_LISTED]:
        event = _event(entry, version)
        if isinstance(event, str):
            flaws.append(event)
        else:
            events.append(event)
    incarnation = value.get("DocumentIncarnation")
    return ReadDocument(
        incarnation=incarnation if type(incarnation) is int else None,
        events=tuple(events),
        flaws=tuple(flaws),
    )


def _event(entry: Any, version: Version | None) -> ListedEvent | str:
    if not isinstance(entry, Mapping):
        return "an entry of Events is not an event"
    id = name(entry.get("EventId")).strip().upper()
    if not id:
        return "an event has no EventId"
    preview, not_before = not_before_of(entry.get("NotBefore"))
    if version is not None:
        preview = version.preview
    resources, flaw = _resources(entry.get("Resources"), preview=preview)
    description = entry.get("Description")
    return ListedEvent(
        id=id,
        status=name(entry.get("EventStatus")),
        type=name(entry.get("EventType")),
        resources=resources,
        not_before=not_before,
        source=name(entry.get("EventSource")),
        seconds=number(entry.get("DurationInSeconds")),
        description=description[:MAX_TEXT] if isinstance(description, str) else None,
        flaw=_flaw(id, entry) or (f"event {id[:MAX_SHOWN]}{flaw}" if flaw else ""),
    )


def _flaw(id: str, entry: Mapping[str, Any]) -> str:
    for key, allowed in (("EventType", TYPE_NAMES), ("EventStatus", STATUSES)):
        if entry.get(key) not in allowed:
            value = printable(str(entry.get(key))[:MAX_SHOWN], MAX_SHOWN)
            return f"event {id[:MAX_SHOWN]}: '{value}' is not a valid {key}"
    return ""


def _resources(value: Any, *, preview: bool) -> tuple[tuple[str, ...], str]:
    """Return the names, and what is wrong with them."""
    if not isinstance(value, list) or not value:
        return (), " has no Resources"
    raw = [name(item) for item in value[:MAX_RESOURCES]]
    bare = (item.removeprefix("_") or item if preview else item for item in raw)
    unique = tuple(dict.fromkeys(item for item in bare if item))
    return unique, "" if all(raw) else ": Resources are not names"


def not_before_of(value: Any) -> tuple[bool, float | None]:
    """Return whether a NotBefore has the form of a preview, and its time."""
    if not isinstance(value, str):
        return False, None
    for preview, parse in ((False, parse_rfc1123), (True, parse_iso8601)):
        try:
            return preview, instant(parse(value.strip()))
        except (ValueError, OverflowError, OSError):
            continue
    return False, None

"""Documents as they were seen, read leniently: of any version, of any service, good or bad.

What cannot be understood is left out or said; nothing here raises. What a proper document is, is
`wire.document`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.wire.times import parse_iso8601, parse_rfc1123
from forewarn.wire.versions import TYPE_NAMES, VERSIONS, Version

STATUSES = ("Scheduled", "Started")
KEYS = (
    *("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"),
    *("Description", "EventSource", "DurationInSeconds"),
)
MAX_DEPTH = 64  # of JSON that is looked at


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a document showed it."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: int | None
    description: str | None = None
    source: str | None = None
    duration: int | None = None


class RecordedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What of a document could be read; `flaws` says what could not."""

    incarnation: int | None
    events: tuple[RecordedEvent, ...]
    flaws: tuple[str, ...] = ()


def sheet(body: bytes | str) -> RecordedDocument | None:
    """The document in an answer; None if it is none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return sheet_of(value)


def sheet_of(value: Any) -> RecordedDocument | None:
    """The same of JSON that was read already. A preview's names lose their underscore."""
    if not isinstance(value, Mapping) or not isinstance(value.get("Events"), list):
        return None
    flaws: list[str] = []
    events: dict[str, RecordedEvent] = {}
    for entry in value["Events"]:
        found = _shown(entry)
        if isinstance(found, str):
            flaws.append(found)
        else:
            events.setdefault(found.id, found)
    incarnation = value.get("DocumentIncarnation")
    return RecordedDocument(
        incarnation=incarnation if type(incarnation) is int else None,
        events=tuple(events.values()),
        flaws=tuple(flaws),
    )


def _shown(entry: Any) -> RecordedEvent | str:
    if not isinstance(entry, Mapping):
        return "an entry of Events is no event"
    id, type_ = entry.get("EventId"), entry.get("EventType")
    if not isinstance(id, str) or not id.strip():
        return "an event has no EventId"
    if type_ not in TYPE_NAMES:
        return f"event {_short(id)}: '{_short(type_)}' is no EventType"
    status = entry.get("EventStatus")
    if status not in STATUSES:
        return f"event {_short(id)}: '{_short(status)}' is no EventStatus"
    names = entry.get("Resources")
    if not isinstance(names, list) or not names:
        return f"event {_short(id)} names no Resources"
    if not all(isinstance(name, str) and name for name in names):
        return f"event {_short(id)}: Resources are not names"
    preview, when = _time(entry.get("NotBefore"))
    description, source = entry.get("Description"), entry.get("EventSource")
    duration = entry.get("DurationInSeconds")
    bare = (name.removeprefix("_") if preview else name for name in names)
    return RecordedEvent(
        id=id.strip().upper(),
        status=status,
        type=type_,
        resources=tuple(dict.fromkeys(name for name in bare if name)) or tuple(names),
        not_before=when if status == "Scheduled" else None,
        description=description if isinstance(description, str) else None,
        source=source if source in ("Platform", "User") else None,
        duration=duration if type(duration) is int else None,
    )


def _time(said: Any) -> tuple[bool, int | None]:
    """Is it a preview's form, and which second is it?"""
    if not isinstance(said, str):
        return False, None
    try:
        return False, parse_rfc1123(said.strip())
    except (ValueError, OverflowError):
        pass
    try:
        return True, parse_iso8601(said.strip())
    except (ValueError, OverflowError):
        return False, None


def fitting(value: Mapping[str, Any]) -> Version | None:
    """The newest version whose keys, types and times these are; None if there is none, as where
    somebody has left something out."""
    entries = value.get("Events")
    if not isinstance(entries, list) or type(value.get("DocumentIncarnation")) is not int:
        return None
    if len(value) != 2:
        return None
    return next((v for v in reversed(VERSIONS) if all(_fits(e, v) for e in entries)), None)


def _fits(entry: Any, version: Version) -> bool:
    if not isinstance(entry, Mapping):
        return False
    wanted = set(KEYS[:6])
    wanted |= {"Description"} if version.description else set()
    wanted |= {"EventSource"} if version.event_source else set()
    wanted |= {"DurationInSeconds"} if version.duration else set()
    if set(entry) != wanted or entry["EventType"] not in version.types:
        return False
    preview, when = _time(entry["NotBefore"])
    return when is None or preview is version.preview


def compact(value: Mapping[str, Any]) -> str:
    """The document as the wire would have had it: who pastes one often has it pretty-printed, or
    its keys sorted."""
    events = [
        {key: entry[key] for key in (*KEYS, *entry) if key in entry}
        if isinstance(entry, Mapping)
        else entry
        for entry in value["Events"]
    ]
    first = {k: v for k, v in value.items() if k == "DocumentIncarnation"}
    rest = {k: v for k, v in value.items() if k not in ("DocumentIncarnation", "Events")}
    # A lone surrogate, which a text may contain as an escape, can only be written as one.
    return json.dumps({**first, "Events": events, **rest}, separators=(",", ":"))


def _short(value: Any) -> str:
    return str(value)[:40]

"""Documents in a recording: without invalid events, and the version that they conform to.

`traces.documents` reads a document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.traces.documents import (
    ListedEvent,
    ReadDocument,
    document_of,
    not_before_of,
    read_document,
)
from forewarn.wire.versions import VERSIONS, Version

SCHEDULED = "Scheduled"
KEYS = (
    *("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"),
    *("Description", "EventSource", "DurationInSeconds"),
)


class RecordedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document without the events that could not be read; `flaws` are the reasons."""

    incarnation: int | None
    events: tuple[ListedEvent, ...]
    flaws: tuple[str, ...] = ()


def recorded_document(body: bytes | str) -> RecordedDocument | None:
    """Read the document in a response; return None if it is not one."""
    return _without_flaws(read_document(body))


def recorded_document_of(value: Any) -> RecordedDocument | None:
    """Read a document from parsed JSON; return None if it is not one."""
    return _without_flaws(document_of(value))


def _without_flaws(document: ReadDocument | None) -> RecordedDocument | None:
    """Remove invalid events, and the NotBefore of those that have started."""
    if document is None:
        return None
    flaws = list(document.flaws)
    events: dict[str, ListedEvent] = {}
    for event in document.events:
        if event.flaw:
            flaws.append(event.flaw)
            continue
        if event.status != SCHEDULED:
            event = msgspec.structs.replace(event, not_before=None)
        events.setdefault(event.id, event)
    return RecordedDocument(
        incarnation=document.incarnation, events=tuple(events.values()), flaws=tuple(flaws)
    )


def matching_version(value: Mapping[str, Any]) -> Version | None:
    """Return the newest version that has these keys, types and times; None if there is none."""
    entries = value.get("Events")
    if not isinstance(entries, list) or type(value.get("DocumentIncarnation")) is not int:
        return None
    if len(value) != 2:
        return None
    return next(
        (
            version
            for version in reversed(VERSIONS)
            if all(_matches(entry, version) for entry in entries)
        ),
        None,
    )


def _matches(entry: Any, version: Version) -> bool:
    if not isinstance(entry, Mapping):
        return False
    expected = set(KEYS[:6])
    expected |= {"Description"} if version.description else set()
    expected |= {"EventSource"} if version.event_source else set()
    expected |= {"DurationInSeconds"} if version.duration else set()
    if set(entry) != expected or entry["EventType"] not in version.types:
        return False
    preview, when = not_before_of(entry["NotBefore"])
    return when is None or preview is version.preview


def compact(value: Mapping[str, Any]) -> str:
    """Encode a document as the endpoint does; what people keep is often indented or sorted."""
    events = [
        {key: entry[key] for key in (*KEYS, *entry) if key in entry}
        if isinstance(entry, Mapping)
        else entry
        for entry in value["Events"]
    ]
    first = {k: v for k, v in value.items() if k == "DocumentIncarnation"}
    others = {k: v for k, v in value.items() if k not in ("DocumentIncarnation", "Events")}
    # A lone surrogate, which a text may contain as an escape, can only be written as one.
    return json.dumps({**first, "Events": events, **others}, separators=(",", ":"))

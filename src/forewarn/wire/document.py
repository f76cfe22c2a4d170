"""The document of scheduled events: `render` writes it for an api-version, `parse` reads it.

Compact JSON, keys in one order, no trailing newline. The document never gains a key.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import UNSET, UnsetType

from forewarn.wire.times import iso8601, parse_iso8601, parse_rfc1123, rfc1123
from forewarn.wire.versions import Version

RESOURCE_TYPE = "VirtualMachine"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a document. None stands for a field that the version does not have, and for the
    NotBefore of an event that has started."""

    id: str
    status: str
    type: str
    resources: tuple[str, ...]
    not_before: int | None  # whole seconds since 1970
    description: str | None = None
    source: str | None = None
    duration: int | None = None


class Document(msgspec.Struct, frozen=True):
    incarnation: int
    events: tuple[Event, ...] = ()


class Unreadable(ValueError):
    """Bytes that are not a document of that version."""


# The order of the fields is the order of the keys on the wire.
class _WireEvent(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    event_id: str
    event_status: str
    event_type: str
    resource_type: str
    resources: tuple[str, ...]
    not_before: str
    description: str | UnsetType = UNSET
    event_source: str | UnsetType = UNSET
    duration_in_seconds: int | UnsetType = UNSET


class _WireDocument(msgspec.Struct, frozen=True, rename="pascal"):
    document_incarnation: int
    events: tuple[_WireEvent, ...]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_WireDocument)


def shown(document: Document, version: Version) -> Document:
    """Return the part of the document that a version shows: its event types and its fields."""
    return Document(
        document.incarnation,
        tuple(
            msgspec.structs.replace(
                event,
                description=event.description if version.description else None,
                source=event.source if version.event_source else None,
                duration=event.duration if version.duration else None,
            )
            for event in document.events
            if event.type in version.types
        ),
    )


def render(document: Document, version: Version) -> bytes:
    """Return the document as JSON of this version."""
    format_time = iso8601 if version.preview else rfc1123
    events = tuple(
        _WireEvent(
            event_id=event.id,
            event_status=event.status,
            event_type=event.type,
            resource_type=RESOURCE_TYPE,
            resources=event.resources,
            not_before="" if event.not_before is None else format_time(event.not_before),
            description=UNSET if event.description is None else event.description,
            event_source=UNSET if event.source is None else event.source,
            duration_in_seconds=UNSET if event.duration is None else event.duration,
        )
        for event in shown(document, version).events
    )
    return _encoder.encode(_WireDocument(document.incarnation, events))


def parse(body: bytes, version: Version) -> Document:
    """Read a document of this version. Raises Unreadable."""
    parse_time = parse_iso8601 if version.preview else parse_rfc1123
    try:
        wire = _decoder.decode(body)
        events = tuple(
            Event(
                id=event.event_id,
                status=event.event_status,
                type=event.event_type,
                resources=event.resources,
                not_before=parse_time(event.not_before) if event.not_before else None,
                description=None if event.description is UNSET else event.description,
                source=None if event.event_source is UNSET else event.event_source,
                duration=None if event.duration_in_seconds is UNSET else event.duration_in_seconds,
            )
            for event in wire.events
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(str(error)) from error
    return Document(wire.document_incarnation, events)


def etag(body: bytes) -> str:
    """Return the entity tag of a body: a quoted hash. The incarnation would not do, because it
    starts again when a group is enabled again."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'

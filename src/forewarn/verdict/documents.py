"""Documents as they were shown: read once, however many machines are shown the same.

Read leniently: a client looks at what is there, and so does this.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from forewarn.verdict.trace_lines import number, word, words
from forewarn.wire.times import parse_iso8601, parse_rfc1123
from forewarn.wire.versions import BY_NAME

MAX_SIGHTS = 64  # documents that are remembered, of all groups
MAX_SHOWN_EVENTS = 10_000  # events of one document that are looked at
MAX_RESOURCES = 1_000  # machines of one event that are looked at
STATUSES = ("Scheduled", "Started")


class ShownEvent(msgspec.Struct, frozen=True):
    """One event of a document."""

    id: str
    status: str
    type: str
    source: str
    resources: tuple[str, ...]
    not_before: float | None
    seconds: float | None


class ShownDocument(msgspec.Struct, frozen=True):
    """One document in one version."""

    version: str
    events: dict[str, ShownEvent]
    types: tuple[str, ...] | None  # that the version shows; None: it is not known

    def shows(self, type: str) -> bool:
        return self.types is None or type in self.types


class Documents:
    def __init__(self) -> None:
        self._by_body: OrderedDict[tuple[str, bytes], ShownDocument | None] = OrderedDict()
        self._by_tag: OrderedDict[tuple[str, str], ShownDocument] = OrderedDict()

    def of(self, version: str, body: bytes, tag: str) -> ShownDocument | None:
        """What a 200 shows; None: that is no document."""
        key = version, body
        if key in self._by_body:
            self._by_body.move_to_end(key)
            sight = self._by_body[key]
        else:
            sight = self._by_body[key] = _read(version, body)
            if len(self._by_body) > MAX_SIGHTS:
                self._by_body.popitem(last=False)
        if sight is not None and tag:
            self._by_tag[version, tag] = sight
            self._by_tag.move_to_end((version, tag))
            if len(self._by_tag) > MAX_SIGHTS:
                self._by_tag.popitem(last=False)
        return sight

    def unchanged(self, version: str, tag: str) -> ShownDocument | None:
        """What a 304 says still stands; None: that is not known any more."""
        return self._by_tag.get((version, tag))


def _read(version: str, body: bytes) -> ShownDocument | None:
    try:
        said = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    listed = said.get("Events") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return None
    events = [_shown(one, version) for one in listed[:MAX_SHOWN_EVENTS] if isinstance(one, dict)]
    known = BY_NAME.get(version)
    found = {one.id: one for one in events if one.id and one.status in STATUSES}
    return ShownDocument(version, found, known.types if known else None)


def _shown(said: dict[str, Any], version: str) -> ShownEvent:
    names = words(said.get("Resources"), MAX_RESOURCES)
    known = BY_NAME.get(version)
    if known is not None and known.preview:
        names = tuple(name.removeprefix("_") for name in names)
    return ShownEvent(
        id=word(said.get("EventId")).upper(),
        status=word(said.get("EventStatus")),
        type=word(said.get("EventType")),
        source=word(said.get("EventSource")),
        resources=names,
        not_before=_time(said.get("NotBefore")),
        seconds=number(said.get("DurationInSeconds")),
    )


def _time(said: object) -> float | None:
    for read in (parse_rfc1123, parse_iso8601):
        try:
            return float(read(word(said)))
        except (ValueError, OverflowError):
            continue
    return None

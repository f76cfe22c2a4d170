"""The documents that machines got, each parsed only once however many machines got it."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from forewarn.traces.documents import STATUSES, ListedEvent, read_document
from forewarn.wire.versions import BY_NAME

MAX_REMEMBERED = 64  # documents that are remembered, of all groups


class ShownDocument(msgspec.Struct, frozen=True):
    """One document in one version."""

    version: str
    events: dict[str, ListedEvent]
    types: tuple[str, ...] | None  # that the version shows; None if the version is unknown

    def shows(self, type: str) -> bool:
        return self.types is None or type in self.types


class Documents:
    def __init__(self) -> None:
        self._by_body: OrderedDict[tuple[str, bytes], ShownDocument | None] = OrderedDict()
        self._by_tag: OrderedDict[tuple[str, str], ShownDocument] = OrderedDict()

    def of(self, version: str, body: bytes, tag: str) -> ShownDocument | None:
        """Return the document in a response with status 200; None if there is none."""
        key = version, body
        if key in self._by_body:
            self._by_body.move_to_end(key)
            document = self._by_body[key]
        else:
            document = self._by_body[key] = _parse(version, body)
            if len(self._by_body) > MAX_REMEMBERED:
                self._by_body.popitem(last=False)
        if document is not None and tag:
            self._by_tag[version, tag] = document
            self._by_tag.move_to_end((version, tag))
            if len(self._by_tag) > MAX_REMEMBERED:
                self._by_tag.popitem(last=False)
        return document

    def unchanged(self, version: str, tag: str) -> ShownDocument | None:
        """Return the document that a 304 stands for; None if it is not remembered."""
        return self._by_tag.get((version, tag))


def _parse(version: str, body: bytes) -> ShownDocument | None:
    known_version = BY_NAME.get(version)
    document = read_document(body, known_version)
    if document is None:
        return None
    events = {event.id: event for event in document.events if event.status in STATUSES}
    return ShownDocument(version, events, known_version.types if known_version else None)

"""Rendered documents of groups: one for each api-version, rendered at the first request.

A rendered document also has its responses as bytes, except for the headers that change with every
response. An empty document is the same in every version and for every group, so it is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from forewarn.metadata.endpoint import to_wire
from forewarn.metadata.upstream import GroupNews
from forewarn.wire.document import Document, etag, render
from forewarn.wire.errors import JSON
from forewarn.wire.versions import NEWEST, Version

UNCHANGED, CLOSE = 1, 2  # flags that select one of the four answers
SHARED_DOCUMENTS = 1_024  # empty documents that are kept, one for each incarnation


class DocumentAnswer:
    """A rendered document as the response to a poll: 200 or 304, with or without keep-alive."""

    __slots__ = ("after", "before", "lines", "opening")

    def __init__(self, rendered: RenderedDocument, unchanged: bool, close: bool) -> None:
        status = "304 Not Modified" if unchanged else "200 OK"
        after = "\r\n"
        if not unchanged:
            after += f"content-type: {JSON}\r\ncontent-length: {len(rendered.body)}\r\n"
        if close:
            after += "connection: close\r\n"
        self.before = f"HTTP/1.1 {status}\r\netag: {rendered.etag}\r\n".encode()
        self.after = f"{after}\r\n".encode() + (b"" if unchanged else rendered.body)
        self.lines = b""  # the common header lines of the current second
        self.opening = b""  # everything before the request id


class RenderedDocument:
    __slots__ = ("answers", "body", "etag", "events")

    def __init__(self, body: bytes, events: tuple[str, ...]) -> None:
        self.body = body
        self.etag = etag(body)
        self.events = events  # the ids it lists
        self.answers: list[DocumentAnswer | None] = [None] * 4  # as far as requested

    def answer(self, which: int) -> DocumentAnswer:
        """Build the response that the flags UNCHANGED and CLOSE select."""
        answer = self.answers[which] = DocumentAnswer(
            self, bool(which & UNCHANGED), bool(which & CLOSE)
        )
        return answer


class GroupDocument:
    """The document of one group, for as long as the service runs. `show` replaces its contents."""

    __slots__ = ("_empty", "enabled", "incarnation", "rendered", "view")

    def __init__(self, news: GroupNews, empty: Callable[[int], RenderedDocument]) -> None:
        self._empty = empty
        self.show(news)

    def show(self, news: GroupNews) -> None:
        self.view = news.view
        self.enabled = news.view.enabled
        self.incarnation = news.view.incarnation
        self.rendered: dict[str, RenderedDocument] = {}  # by version, as far as requested

    def render(self, version: Version) -> RenderedDocument:
        rendered = self.rendered.get(version.name)
        if rendered is None:
            rendered = self.rendered[version.name] = self._rendered(version)
        return rendered

    def _rendered(self, version: Version) -> RenderedDocument:
        if not self.view.events:
            return self._empty(self.incarnation)
        document = to_wire.document(self.view, version)
        return RenderedDocument(
            render(document, version), tuple(event.id for event in document.events)
        )


class GroupDocuments:
    """The documents by group. One is replaced only when the group's view has changed."""

    def __init__(self) -> None:
        self._documents: dict[str, GroupDocument] = {}
        self._empty = lru_cache(maxsize=SHARED_DOCUMENTS)(_empty)

    def update(self, news: GroupNews) -> GroupDocument:
        document = self._documents.get(news.view.name)
        if document is None:
            document = self._documents[news.view.name] = GroupDocument(news, self._empty)
        elif document.view != news.view:
            document.show(news)
        return document


def _empty(incarnation: int) -> RenderedDocument:
    return RenderedDocument(render(Document(incarnation), NEWEST), ())

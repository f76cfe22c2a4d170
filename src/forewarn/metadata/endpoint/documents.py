"""Boards: a group's rendered document, one page for each version, made when first asked for.

A page also knows its answers as bytes, but for what stands on every one of them. The empty
document is the same in every version and for every group, so its pages are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from forewarn.metadata.endpoint import to_wire
from forewarn.metadata.upstream import GroupNews
from forewarn.wire.document import Document, etag, render
from forewarn.wire.errors import JSON
from forewarn.wire.versions import NEWEST, Version

UNCHANGED, CLOSE = 1, 2  # which answer: these or neither
SHARED_PAGES = 1_024  # empty documents that are kept, one for each incarnation


class DocumentAnswer:
    """A page as the answer to a poll: 200 or 304, and whether the connection is closed."""

    __slots__ = ("after", "before", "lines", "opening")

    def __init__(self, page: RenderedDocument, unchanged: bool, close: bool) -> None:
        status = "304 Not Modified" if unchanged else "200 OK"
        after = "\r\n"
        if not unchanged:
            after += f"content-type: {JSON}\r\ncontent-length: {len(page.body)}\r\n"
        if close:
            after += "connection: close\r\n"
        self.before = f"HTTP/1.1 {status}\r\netag: {page.etag}\r\n".encode()
        self.after = f"{after}\r\n".encode() + (b"" if unchanged else page.body)
        self.lines = self.opening = b""  # the standing lines of this second; all before its id


class RenderedDocument:
    __slots__ = ("answers", "body", "etag", "events")

    def __init__(self, body: bytes, events: tuple[str, ...]) -> None:
        self.body = body
        self.etag = etag(body)
        self.events = events  # the ids it lists
        self.answers: list[DocumentAnswer | None] = [None] * 4  # as far as they have been asked for

    def answer(self, which: int) -> DocumentAnswer:
        """200 or 304, the latter being one more; and two more if the connection is closed."""
        answer = self.answers[which] = DocumentAnswer(
            self, bool(which & UNCHANGED), bool(which & CLOSE)
        )
        return answer


class GroupDocument:
    """One group's, for as long as the service runs; `show` replaces all that hangs on it."""

    __slots__ = ("_empty", "enabled", "incarnation", "pages", "view")

    def __init__(self, news: GroupNews, empty: Callable[[int], RenderedDocument]) -> None:
        self._empty = empty
        self.show(news)

    def show(self, news: GroupNews) -> None:
        self.view = news.view
        self.enabled = news.view.enabled
        self.incarnation = news.view.incarnation
        self.pages: dict[
            str, RenderedDocument
        ] = {}  # by version, as far as they have been asked for

    def page(self, version: Version) -> RenderedDocument:
        page = self.pages.get(version.name)
        if page is None:
            page = self.pages[version.name] = self._rendered(version)
        return page

    def _rendered(self, version: Version) -> RenderedDocument:
        if not self.view.events:
            return self._empty(self.incarnation)
        document = to_wire.document(self.view, version)
        return RenderedDocument(
            render(document, version), tuple(event.id for event in document.events)
        )


class GroupDocuments:
    """By group. What a board shows is replaced when the group's view changes, and only then."""

    def __init__(self) -> None:
        self._boards: dict[str, GroupDocument] = {}
        self._empty = lru_cache(maxsize=SHARED_PAGES)(_empty)

    def told(self, news: GroupNews) -> GroupDocument:
        board = self._boards.get(news.view.name)
        if board is None:
            board = self._boards[news.view.name] = GroupDocument(news, self._empty)
        elif board.view != news.view:
            board.show(news)
        return board


def _empty(incarnation: int) -> RenderedDocument:
    return RenderedDocument(render(Document(incarnation), NEWEST), ())

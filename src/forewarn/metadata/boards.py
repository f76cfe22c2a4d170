"""Boards: a group's rendered document, one page for each version, made when first asked for.

A page also knows its answers as bytes, but for what stands on every one of them. The empty
document is the same in every version and for every group, so its pages are shared.
"""

from __future__ import annotations

from functools import lru_cache

from forewarn.metadata import present
from forewarn.metadata.upstream import GroupNews
from forewarn.wire.document import Document, etag, render
from forewarn.wire.errors import JSON
from forewarn.wire.versions import NEWEST, Version

SHARED_PAGES = 1_024  # empty documents that are kept, one for each incarnation


class Page:
    __slots__ = ("_answers", "body", "etag", "events")

    def __init__(self, body: bytes, events: tuple[str, ...]) -> None:
        self.body = body
        self.etag = etag(body)
        self.events = events  # the ids it lists
        self._answers: list[tuple[bytes, bytes] | None] = [None] * 4

    def answer(self, unchanged: bool, close: bool) -> tuple[bytes, bytes]:
        """What comes before and what comes after the headers that stand on every answer."""
        at = unchanged + 2 * close
        return self._answers[at] or self._made(at, unchanged, close)

    def _made(self, at: int, unchanged: bool, close: bool) -> tuple[bytes, bytes]:
        status = "304 Not Modified" if unchanged else "200 OK"
        after = "\r\n"
        if not unchanged:
            after += f"content-type: {JSON}\r\ncontent-length: {len(self.body)}\r\n"
        if close:
            after += "connection: close\r\n"
        made = (
            f"HTTP/1.1 {status}\r\netag: {self.etag}\r\n".encode(),
            f"{after}\r\n".encode() + (b"" if unchanged else self.body),
        )
        self._answers[at] = made
        return made


class Board:
    __slots__ = ("_pages", "enabled", "incarnation", "view")

    def __init__(self, news: GroupNews) -> None:
        self.view = news.view
        self.enabled = news.view.enabled
        self.incarnation = news.view.incarnation
        self._pages: dict[str, Page] | None = {} if news.view.events else None

    def page(self, version: Version) -> Page:
        if self._pages is None:
            return _empty(self.incarnation)
        page = self._pages.get(version.name)
        if page is None:
            document = present.document(self.view, version)
            page = Page(render(document, version), tuple(event.id for event in document.events))
            self._pages[version.name] = page
        return page


class Boards:
    """By group. A board is replaced when the group's view changes, and only then."""

    def __init__(self) -> None:
        self._boards: dict[str, Board] = {}

    def told(self, news: GroupNews) -> None:
        board = self._boards.get(news.view.name)
        if board is None or board.view != news.view:
            self._boards[news.view.name] = Board(news)

    def of(self, group: str) -> Board:
        return self._boards[group]


@lru_cache(maxsize=SHARED_PAGES)
def _empty(incarnation: int) -> Page:
    return Page(render(Document(incarnation), NEWEST), ())

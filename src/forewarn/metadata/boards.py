"""Boards: a group's rendered document, one page for each version, made when first asked for."""

from __future__ import annotations

import msgspec

from forewarn.metadata import present
from forewarn.metadata.upstream import GroupNews
from forewarn.wire.document import etag, render
from forewarn.wire.versions import Version


class Page(msgspec.Struct, frozen=True):
    body: bytes
    etag: str
    events: tuple[str, ...]  # the ids it lists


class Board:
    def __init__(self, news: GroupNews) -> None:
        self.view = news.view
        self._pages: dict[str, Page] = {}

    def page(self, version: Version) -> Page:
        page = self._pages.get(version.name)
        if page is None:
            document = present.document(self.view, version)
            body = render(document, version)
            page = Page(body, etag(body), tuple(event.id for event in document.events))
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

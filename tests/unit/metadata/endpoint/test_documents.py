"""Boards: pages are made when asked for, empty ones are shared, and stale ones are not kept."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import EventType, GroupKind, GroupView, Source, Status
from forewarn.core.fleet import Place
from forewarn.core.group import EventView
from forewarn.metadata.endpoint.documents import CLOSE, SHARED_PAGES, UNCHANGED, GroupDocuments
from forewarn.metadata.upstream import GroupNews
from forewarn.wire.versions import BY_NAME, NEWEST, VERSIONS

EVENT = EventView(
    id="28512AF7-C957-4500-9BC4-842D6FB531E4",
    type=EventType.REBOOT,
    status=Status.SCHEDULED,
    resources=("web_0",),
    not_before=1_800_000_000 * 1_000_000,
    description="",
    source=Source.PLATFORM,
    duration=-1,
)


def news(
    name: str = "web",
    incarnation: int = 1,
    events: tuple[EventView, ...] = (),
    enabled: bool = True,
) -> GroupNews:
    view = GroupView(
        name=name,
        kind=GroupKind.SCALE_SET,
        enabled=enabled,
        incarnation=incarnation,
        events=events,
    )
    return GroupNews(view, (), Place())


def test_a_thousand_idle_groups_have_no_pages() -> None:
    boards = GroupDocuments()
    made = [boards.told(news(f"web{n}")) for n in range(1_000)]
    assert all(board.pages == {} for board in made)


def test_an_empty_document_is_one_page_for_all_groups_and_versions() -> None:
    boards = GroupDocuments()
    made = [boards.told(news(f"web{n}")) for n in range(1_000)]
    assert len({id(board.page(version)) for board in made for version in VERSIONS}) == 1
    assert made[0].page(NEWEST).body == b'{"DocumentIncarnation":1,"Events":[]}'
    other = boards.told(news("other", incarnation=2))
    assert other.page(NEWEST) is not made[0].page(NEWEST)
    assert other.page(NEWEST).body == b'{"DocumentIncarnation":2,"Events":[]}'


def test_a_shared_page_that_was_put_out_does_no_harm() -> None:
    board = GroupDocuments().told(news())
    body = board.page(NEWEST).body
    others = GroupDocuments()
    for n in range(SHARED_PAGES + 1):
        others.told(news(incarnation=1_000 + n)).page(NEWEST)
    assert board.page(NEWEST).body == body
    assert GroupDocuments().told(news()).page(NEWEST).body == body


def test_pages_and_answers_are_made_when_first_asked_for_and_then_kept() -> None:
    board = GroupDocuments().told(news(events=(EVENT,)))
    assert board.pages == {}
    page = board.page(NEWEST)
    assert list(board.pages) == [NEWEST.name]
    assert board.page(NEWEST) is page
    assert page.answers == [None] * 4
    answer = page.answer(CLOSE)
    assert page.answers == [None, None, answer, None]


def test_the_same_news_again_replaces_nothing() -> None:
    boards = GroupDocuments()
    board = boards.told(news(events=(EVENT,)))
    page = board.page(NEWEST)
    assert boards.told(news(events=(EVENT,))) is board
    assert board.page(NEWEST) is page


@pytest.mark.parametrize(
    "other",
    [
        news(incarnation=2, events=(EVENT,)),
        news(events=(msgspec.structs.replace(EVENT, status=Status.STARTED, not_before=None),)),
        news(events=()),
        news(events=(EVENT,), enabled=False),
    ],
)
def test_other_news_replace_every_page_of_the_same_board(other: GroupNews) -> None:
    boards = GroupDocuments()
    board = boards.told(news(events=(EVENT,)))
    for version in VERSIONS:
        board.page(version)
    assert boards.told(other) is board, "whoever holds it sees the new document"
    assert board.pages == {}
    assert (board.view, board.enabled) == (other.view, other.view.enabled)
    assert board.incarnation == other.view.incarnation


def test_a_page_knows_what_its_version_lists() -> None:
    preempt = msgspec.structs.replace(EVENT, id="A" * 36, type=EventType.PREEMPT)
    board = GroupDocuments().told(news(events=(EVENT, preempt)))
    assert board.page(NEWEST).events == (EVENT.id, preempt.id)
    assert board.page(BY_NAME["2017-08-01"]).events == (EVENT.id,)


def test_one_groups_events_are_on_no_other_board() -> None:
    boards = GroupDocuments()
    busy, idle = boards.told(news("busy", events=(EVENT,))), boards.told(news("idle"))
    assert EVENT.id.encode() in busy.page(NEWEST).body
    assert idle.page(NEWEST).events == ()


@pytest.mark.parametrize(
    ("which", "status", "closes"),
    [
        (0, b"200 OK", False),
        (UNCHANGED, b"304 Not Modified", False),
        (CLOSE, b"200 OK", True),
        (CLOSE + UNCHANGED, b"304 Not Modified", True),
    ],
)
def test_an_answer_in_its_four_forms(which: int, status: bytes, closes: bool) -> None:
    page = GroupDocuments().told(news(events=(EVENT,))).page(NEWEST)
    answer = page.answer(which)
    head, _, body = (answer.before + b"x: y" + answer.after).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[:2] == [b"HTTP/1.1 " + status, b"etag: " + page.etag.encode()]
    assert (b"connection: close" in lines) is closes
    if which & UNCHANGED:
        assert body == b""
        assert not [line for line in lines if line.startswith(b"content-")]
    else:
        assert body == page.body
        assert b"content-length: %d" % len(body) in lines
        assert b"content-type: application/json; charset=utf-8" in lines

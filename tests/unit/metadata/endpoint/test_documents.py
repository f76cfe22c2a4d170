"""Boards: pages are made when asked for, empty ones are shared, and stale ones are not kept."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import EventType, GroupKind, GroupView, Source, Status
from forewarn.core.fleet import Place
from forewarn.core.group import EventView
from forewarn.metadata.endpoint.documents import CLOSE, SHARED_DOCUMENTS, UNCHANGED, GroupDocuments
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


def test_idle_groups_have_no_renderings() -> None:
    documents = GroupDocuments()
    made = [documents.update(news(f"web{n}")) for n in range(1_000)]
    assert all(document.rendered == {} for document in made)


def test_an_empty_document_is_rendered_once_for_all_groups_and_versions() -> None:
    documents = GroupDocuments()
    made = [documents.update(news(f"web{n}")) for n in range(1_000)]
    assert len({id(document.render(version)) for document in made for version in VERSIONS}) == 1
    assert made[0].render(NEWEST).body == b'{"DocumentIncarnation":1,"Events":[]}'
    other = documents.update(news("other", incarnation=2))
    assert other.render(NEWEST) is not made[0].render(NEWEST)
    assert other.render(NEWEST).body == b'{"DocumentIncarnation":2,"Events":[]}'


def test_a_shared_rendering_that_was_evicted_is_rendered_again() -> None:
    document = GroupDocuments().update(news())
    body = document.render(NEWEST).body
    others = GroupDocuments()
    for n in range(SHARED_DOCUMENTS + 1):
        others.update(news(incarnation=1_000 + n)).render(NEWEST)
    assert document.render(NEWEST).body == body
    assert GroupDocuments().update(news()).render(NEWEST).body == body


def test_renderings_and_answers_are_made_on_demand_and_kept() -> None:
    document = GroupDocuments().update(news(events=(EVENT,)))
    assert document.rendered == {}
    rendered = document.render(NEWEST)
    assert list(document.rendered) == [NEWEST.name]
    assert document.render(NEWEST) is rendered
    assert rendered.answers == [None] * 4
    answer = rendered.answer(CLOSE)
    assert rendered.answers == [None, None, answer, None]


def test_an_unchanged_update_keeps_the_rendering() -> None:
    documents = GroupDocuments()
    document = documents.update(news(events=(EVENT,)))
    rendered = document.render(NEWEST)
    assert documents.update(news(events=(EVENT,))) is document
    assert document.render(NEWEST) is rendered


@pytest.mark.parametrize(
    "other",
    [
        news(incarnation=2, events=(EVENT,)),
        news(events=(msgspec.structs.replace(EVENT, status=Status.STARTED, not_before=None),)),
        news(events=()),
        news(events=(EVENT,), enabled=False),
    ],
)
def test_a_changed_update_drops_every_rendering_of_the_document(other: GroupNews) -> None:
    documents = GroupDocuments()
    document = documents.update(news(events=(EVENT,)))
    for version in VERSIONS:
        document.render(version)
    assert documents.update(other) is document, "whoever holds it sees the new document"
    assert document.rendered == {}
    assert (document.view, document.enabled) == (other.view, other.view.enabled)
    assert document.incarnation == other.view.incarnation


def test_a_rendering_knows_the_events_that_its_version_lists() -> None:
    preempt = msgspec.structs.replace(EVENT, id="A" * 36, type=EventType.PREEMPT)
    document = GroupDocuments().update(news(events=(EVENT, preempt)))
    assert document.render(NEWEST).events == (EVENT.id, preempt.id)
    assert document.render(BY_NAME["2017-08-01"]).events == (EVENT.id,)


def test_events_of_a_group_are_in_no_other_document() -> None:
    documents = GroupDocuments()
    busy, idle = documents.update(news("busy", events=(EVENT,))), documents.update(news("idle"))
    assert EVENT.id.encode() in busy.render(NEWEST).body
    assert idle.render(NEWEST).events == ()


@pytest.mark.parametrize(
    ("which", "status", "closes"),
    [
        (0, b"200 OK", False),
        (UNCHANGED, b"304 Not Modified", False),
        (CLOSE, b"200 OK", True),
        (CLOSE + UNCHANGED, b"304 Not Modified", True),
    ],
)
def test_an_answer_has_four_forms(which: int, status: bytes, closes: bool) -> None:
    rendered = GroupDocuments().update(news(events=(EVENT,))).render(NEWEST)
    answer = rendered.answer(which)
    head, _, body = (answer.before + b"x: y" + answer.after).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[:2] == [b"HTTP/1.1 " + status, b"etag: " + rendered.etag.encode()]
    assert (b"connection: close" in lines) is closes
    if which & UNCHANGED:
        assert body == b""
        assert not [line for line in lines if line.startswith(b"content-")]
    else:
        assert body == rendered.body
        assert b"content-length: %d" % len(body) in lines
        assert b"content-type: application/json; charset=utf-8" in lines

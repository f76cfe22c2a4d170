"""What has changed from one document to the next, whatever documents come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client.changes import ChangeTracker
from forewarn.client.events import Change, Document, Event
from helpers.examples import examples

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
DUE = NOON + timedelta(minutes=15)


def event(id: str = "A", status: str = "Scheduled", type: str = "Reboot") -> Event:
    not_before = DUE if status == "Scheduled" else None
    return Event(id=id, type=type, status=status, resources=("web_0",), not_before=not_before)


def reported(*documents: list[Event], at: datetime = NOON) -> list[tuple[str, ...]]:
    following = ChangeTracker()
    looked = (following.update(Document(1, tuple(one)), at) for one in documents)
    return [tuple(f"{change.event.id} {change.kind}" for change in changes) for changes in looked]


events = st.builds(
    event, st.sampled_from("ABCabc"), st.sampled_from(["Scheduled", "Started", "Unheard-of"])
)
documents = st.lists(
    st.builds(Document, st.none() | st.integers(), st.lists(events, max_size=4).map(tuple)),
    max_size=12,
)


def test_an_event_whose_not_before_moves_is_rescheduled_until_it_starts() -> None:
    following = ChangeTracker()
    later = msgspec.structs.replace(event(), not_before=DUE + timedelta(hours=1))
    for shown, kinds in (
        (event(), ["appeared"]),
        (later, ["rescheduled"]),
        (later, []),
        (event(), ["rescheduled"]),
        (event(status="Started"), ["started"]),
    ):
        changes = following.update(Document(1, (shown,)), NOON)
        assert [change.kind for change in changes] == kinds
        if kinds == ["rescheduled"]:
            assert {changes[0].earlier_not_before, shown.not_before} == {DUE, later.not_before}


@settings(max_examples=examples(60))
@given(documents, st.integers(0, 60))
def test_an_event_appears_starts_at_most_once_and_ends_once(
    shown: list[Document], minutes: int
) -> None:
    following = ChangeTracker()
    lives: dict[str, list[str]] = {}
    for number, document in enumerate(shown):
        changes = following.update(document, NOON + timedelta(minutes=minutes * number))
        for change in changes:
            lives.setdefault(change.event.id.upper(), []).append(change.kind)
        listed = {one.id.upper() for one in document.events}
        open_ones = {id for id, life in lives.items() if life[-1] in ("appeared", "started")}
        assert open_ones == listed, "what is listed has begun, and everything else has ended"
    for life in lives.values():
        response = " ".join(life)
        for whole in (
            "appeared started finished",
            "appeared finished",
            "appeared withdrawn",
        ):
            response = response.replace(whole, "")
        assert response.split() in ([], ["appeared"], ["appeared", "started"])


@settings(max_examples=examples(30))
@given(documents)
def test_incarnations_change_nothing(shown: list[Document]) -> None:
    one, other = ChangeTracker(), ChangeTracker()
    for number, document in enumerate(shown):
        renumbered = Document(-number, document.events)
        assert one.update(document, NOON) == other.update(renumbered, NOON)


@settings(max_examples=examples(30))
@given(documents)
def test_the_same_document_twice_gives_no_changes(shown: list[Document]) -> None:
    following = ChangeTracker()
    for document in shown:
        following.update(document, NOON)
        assert following.update(document, NOON) == ()


def test_an_event_first_seen_started_has_appeared() -> None:
    assert reported([event(status="Started")]) == [("A appeared", "A started")]


def test_ended_events_are_reported_before_new_ones() -> None:
    assert reported([event("A")], [event("B")]) == [("A appeared",), ("A withdrawn", "B appeared")]


@pytest.mark.parametrize(
    ("minutes", "approved", "kind", "presumed"),
    [
        (14, False, "withdrawn", False),
        (15, False, "finished", True),
        (14, True, "finished", True),
    ],
)
def test_a_scheduled_event_that_disappears_was_withdrawn_or_finished(
    minutes: int, approved: bool, kind: str, presumed: bool
) -> None:
    following = ChangeTracker()
    following.update(Document(1, (event("a"),)), NOON)
    if approved:
        following.mark_approved("A")
    at = NOON + timedelta(minutes=minutes)
    assert following.update(Document(1), at) == (
        Change(kind=kind, event=event("a"), at=at, presumed=presumed),  # type: ignore[arg-type]
    )


def test_a_document_that_goes_back_does_not_start_an_event_twice() -> None:
    started = event(status="Started")
    assert reported([started], [event()], [started], []) == [
        ("A appeared", "A started"),
        (),
        (),
        ("A finished",),
    ]


def test_an_event_that_is_listed_again_appears_again() -> None:
    assert reported([event()], [], [event()]) == [
        ("A appeared",),
        ("A withdrawn",),
        ("A appeared",),
    ]


def test_an_event_that_a_version_does_not_list_is_not_over() -> None:
    following = ChangeTracker()
    spot = event("P", type="Preempt")
    following.update(Document(1, (event("A"), spot)), NOON)
    assert following.update(Document(1, (event("A"),)), NOON, {"Preempt"}) == ()
    assert following.update(Document(1, (event("A"), spot)), NOON) == ()
    (gone,) = following.update(Document(1, (event("A"),)), NOON)
    assert (gone.event.id, gone.kind) == ("P", "withdrawn")

"""A document off an answer's body, whatever shape the service is in that day."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.client.document import NotADocument, parse_document
from forewarn.client.events import Event, from_timestamp
from forewarn.wire.fault_bodies import with_control_characters
from helpers.examples import examples
from helpers.scripted_client import EVENT, body


def only(**changed: Any) -> Event:
    (event,) = parse_document(body({**EVENT, **changed})).events
    return event


def test_an_event_of_the_newest_version_is_read_whole() -> None:
    more = {"Description": "Host server…", "EventSource": "Platform", "DurationInSeconds": 9}
    assert only(**more) == Event(
        id="28512AF7-C957-4500-9BC4-842D6FB531E4",
        type="Reboot",
        status="Scheduled",
        resources=("web_0",),
        not_before=datetime(2018, 1, 24, 21, 20, 44, tzinfo=UTC),
        description="Host server…",
        source="Platform",
        duration=9,
    )


def test_fields_that_a_version_lacks_are_unknown() -> None:
    event = only()
    assert (event.description, event.source, event.duration) == ("", "", None)


@pytest.mark.parametrize("duration", [-1, True, "9", 1.5, None, 2**70])
def test_an_invalid_duration_is_unknown(duration: Any) -> None:
    assert only(DurationInSeconds=duration).duration is None


@pytest.mark.parametrize(
    "response",
    [
        "Wed, 24 Jan 2018 21:20:44 GMT",
        "2018-01-24T21:20:44Z",
        "2018-01-24T21:20:44.000Z",
        "2018-01-24T22:20:44+01:00",
    ],
)
def test_a_time_is_read_in_every_form_that_was_ever_sent(response: str) -> None:
    assert only(NotBefore=response).not_before == datetime(2018, 1, 24, 21, 20, 44, tzinfo=UTC)


@pytest.mark.parametrize("response", ["", "soon", None, 7, "0001-01-01T00:00:00+14:00"])
def test_an_invalid_time_is_unknown(response: Any) -> None:
    assert only(NotBefore=response).not_before is None


def test_a_started_event_has_no_not_before() -> None:
    assert only(EventStatus="Started").not_before is None
    assert (only(EventStatus="SCHEDULED").started, only(EventStatus="Paused").started) == (
        False,
        True,
    )


def test_control_characters_spoil_neither_a_text_nor_a_name() -> None:
    with_text = body({**EVENT, "Description": "Host\nserver"}).replace(b": ", b":")
    (event,) = parse_document(with_control_characters(with_text)).events
    assert event.description == "\t\nHost\nserver"
    (event,) = parse_document(with_control_characters(body(EVENT).replace(b": ", b":"))).events
    assert event.resources == ("web_0",)
    assert only(Description="a\x00b").description == "ab", "a hook's environment has no room for it"


def test_halves_of_characters_can_be_written_again() -> None:
    spoiled = body(EVENT).replace(b"web_0", b"\\ud800web_0")
    assert msgspec.json.encode(parse_document(spoiled)), "no half of a character is left"
    assert parse_document(b'\xef\xbb\xbf \n{"Events":[]}\n').events == ()
    assert parse_document(b'{"Events":[],"Junk":"\xff"}').events == ()


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"", "an empty body"),
        (b" \r\n", "an empty body"),
        (b'{"DocumentIncarnation":7}', "without Events"),
        (b'{"Events":null}', "without Events"),
        (b"[]", "not a document"),
        (b"Service unavailable", "not JSON"),
        (body(EVENT)[:60], "incomplete"),
        (b"[" * 100_000, "not JSON"),
        (b'{"Events":[7]}', "not an object"),
        (b'{"Events":[{"EventType":"Reboot","EventStatus":"Scheduled"}]}', "without EventId"),
        (body(EVENT).replace(b'"28512AF7-C957-4500-9BC4-842D6FB531E4"', b"7"), "without EventId"),
    ],
)
def test_an_invalid_document_is_not_taken_for_an_empty_one(response: bytes, why: str) -> None:
    with pytest.raises(NotADocument, match=why):
        parse_document(response)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*EVENT, "Description", "EventSource", "DurationInSeconds", "Other"])


@settings(max_examples=examples(30))
@given(st.lists(st.dictionaries(keys, values, max_size=9), max_size=3))
def test_anything_is_read_or_refused(entries: list[dict[str, Any]]) -> None:
    response = json.dumps({"DocumentIncarnation": 1, "Events": entries}).encode()
    try:
        document = parse_document(response)
    except NotADocument:
        return
    assert len(document.events) == len(entries)
    msgspec.json.encode(document)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(response: bytes) -> None:
    with pytest.raises(NotADocument):
        parse_document(response)


@pytest.mark.parametrize(("seconds", "year"), [(1e300, 9999), (-1e300, 1970), (1.5e9, 2017)])
def test_a_time_beyond_the_calendar_is_clamped_to_it(seconds: float, year: int) -> None:
    assert from_timestamp(seconds).year == year

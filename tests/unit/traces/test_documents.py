"""Documents and lines of traces are read leniently, and alike by everything that follows them."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Stamp, exchange
from forewarn.traces.lines import LAST, content, decode, instant, name, names
from forewarn.wire.versions import BY_NAME

EVENT = {
    "EventId": "a-1",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["web_0", "web_0"],
    "NotBefore": "Fri, 15 Jan 2027 08:15:00 GMT",
}


def document(*events: Any) -> bytes:
    return msgspec.json.encode({"DocumentIncarnation": 3, "Events": events})


def test_a_proper_document_is_read_without_flaws() -> None:
    read = read_document(b"\xef\xbb\xbf" + document(EVENT))
    assert read is not None
    (event,) = read.events
    assert (read.incarnation, read.flaws, event.flaw) == (3, (), "")
    assert (event.id, event.resources, event.not_before) == ("A-1", ("web_0",), 1_800_000_900.0)


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"EventType": "Rebot"}, "'Rebot' .*EventType"),
        ({"EventStatus": None}, "'None' .*EventStatus"),
        ({"Resources": []}, "no Resources"),
        ({"Resources": ["web_0", 5]}, "Resources are not"),
    ],
)
def test_a_flawed_event_has_its_flaw(change: dict[str, Any], flaw: str) -> None:
    read = read_document(document(EVENT | change, 7, {}))
    assert read is not None
    [event] = read.events
    assert re.match(f"event A-1.*{flaw}", event.flaw)
    first, second = read.flaws
    assert "not an event" in first
    assert "no EventId" in second


@pytest.mark.parametrize("body", [b"", b"[]", b'{"Events": 5}', b"{" * 100_000, b"\xff"])
def test_an_invalid_document_is_none(body: bytes) -> None:
    assert read_document(body) is None


def test_the_underscore_of_a_preview_is_removed() -> None:
    old = EVENT | {"Resources": ["_web_0"], "NotBefore": "2027-01-15T08:15:00Z"}
    for version in (None, BY_NAME["2017-03-01"]):
        read = read_document(document(old), version)
        assert read is not None
        assert read.events[0].resources == ("web_0",)
    read = read_document(document(old), BY_NAME["2020-07-01"])
    assert read is not None
    assert read.events[0].resources == ("_web_0",)


def test_values_of_a_line_are_validated() -> None:
    assert [instant(value) for value in (1.5, -1, LAST + 1, True, "1", float("nan"))] == [
        *(1.5, None, None, None, None, None)
    ]
    assert (name("a\x1b[2J"), name(7), names(["a", 5, "a", ""])) == ("a\\x1b[2J", "", ("a",))
    assert decode(b'{"kind":"up","t":1}') == {"kind": "up", "t": 1}
    assert [decode(data) for data in (b"", b"[]", b'{"kind":5}', b"\xff")] == [None] * 4
    assert content({"body_base64": "YQ=="}, "body", 10) == b"a"
    assert (content({}, "body", 10), content({"body": "x" * 11}, "body", 10)) == (b"", None)


def test_an_exchange_knows_what_was_asked_for() -> None:
    events = "/metadata/scheduledevents/?api-version=2017-11-01"
    poll = exchange({"method": "GET", "target": events}, Stamp(5.0))
    assert poll.polls
    assert (poll.approves, poll.known_version.name, poll.readiness_of) == (False, "2017-11-01", "")
    body = '{"StartRequests":[{"EventId":"a"},{"EventId":"A"}]}'
    post = exchange({"method": "POST", "target": events, "body": body}, Stamp(5.0))
    assert (post.approves, post.approved_ids()) == (True, ("A",))
    put = exchange({"method": "PUT", "target": "/forewarn/v1/ready/a-1"}, Stamp(5.0))
    assert (put.readiness_of, put.polls) == ("A-1", False)

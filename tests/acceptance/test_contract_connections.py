"""Connections: kept, one-shot, old and slow; tags; and what is said to what is not HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from guests import METADATA, NEWEST, VERSIONS, Groups, Guest, approval, events, fleet_of
from raw import request

from forewarn.metadata.limits import Limits
from forewarn.testing import Service

COUNT = 16
GET = request("GET", events(NEWEST), METADATA)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    limits = Limits(body_timeout=0.2)
    with Service(fleet_of(COUNT), sockets=True, limits=limits) as service:
        yield service


@pytest.fixture(scope="module")
def groups(service: Service) -> Groups:
    return Groups(service, COUNT)


@pytest.fixture(scope="module")
def guest(groups: Groups) -> Guest:
    """Of a group that is enabled and has no events, for tests that change nothing."""
    return groups.awake()[0]


# Kept and closed.


def test_a_connection_is_kept(guest: Guest) -> None:
    with guest.line() as line:
        for _ in range(5):
            line.send(GET)
            answer = line.answer()
            assert answer.status == 200
            assert answer.all("connection") == []


def test_it_is_kept_over_errors_and_approvals_too(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        for data, status in [
            (request("GET", "/nothing", METADATA), 404),
            (request("GET", events(NEWEST)), 400),
            (request("PUT", events(NEWEST), METADATA, body=b"{}"), 405),
            (request("POST", events("never"), METADATA, body=approval("A")), 400),
            (request("POST", events(NEWEST), METADATA, body=b"{"), 400),
            (request("POST", events(NEWEST), METADATA, body=approval("A")), 400),
            (request("POST", events(NEWEST), METADATA, body=approval(event.id)), 200),
            (GET, 200),
        ]:
            line.send(data)
            answer = line.answer()
            assert (answer.status, answer.all("connection")) == (status, [])
    assert guest.statuses() == {event.id: "Started"}


def test_whoever_asks_for_one_answer_is_told_that_the_line_closes(guest: Guest) -> None:
    with guest.line() as line:
        line.send(request("GET", events(NEWEST), METADATA, "Connection: close"))
        answer = line.answer()
        assert answer.status == 200
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_an_old_client_gets_its_answer_and_the_line_closes(guest: Guest) -> None:
    with guest.line() as line:
        line.send(GET.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: 169.254.169.254\r\n", b""))
        answer = line.answer()
        assert answer.status == 200
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_an_old_client_can_approve(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    data = request("POST", events(NEWEST), METADATA, body=approval(event.id))
    answer = guest.say(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.header("connection") == "close"
    assert guest.statuses() == {event.id: "Started"}


def test_a_client_that_has_said_all_it_will_say_is_still_answered(guest: Guest) -> None:
    with guest.line() as line:
        line.send(GET)
        line.finish()
        assert line.answer().status == 200


def test_a_request_may_come_in_single_bytes(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        line.send_in_bytes(GET)
        assert line.answer().status == 200
        line.send_in_bytes(request("POST", events(NEWEST), METADATA, body=approval(event.id)))
        assert line.answer().status == 200
    assert guest.statuses() == {event.id: "Started"}


def test_requests_may_be_sent_ahead_and_are_answered_in_order(guest: Guest) -> None:
    with guest.line() as line:
        line.send(GET + request("GET", "/nothing", METADATA) + request("GET", events(NEWEST)) + GET)
        assert [line.answer().status for _ in range(4)] == [200, 404, 400, 200]


def test_a_get_may_have_a_body_that_nobody_reads(guest: Guest) -> None:
    with guest.line() as line:
        for _ in range(2):
            line.send(request("GET", events(NEWEST), METADATA, body=b"x" * 1_000))
            assert line.answer().status == 200


def test_a_target_may_be_absolute(guest: Guest) -> None:
    target = "http://169.254.169.254" + events(NEWEST)
    assert guest.say(request("GET", target, METADATA)).status == 200


def test_expect_continue_is_answered_before_the_body_is_sent(
    groups: Groups, service: Service
) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    body = approval(event.id)
    with guest.line() as line:
        line.send(
            request(
                "POST",
                events(NEWEST),
                METADATA,
                "Expect: 100-continue",
                f"Content-Length: {len(body)}",
            )
        )
        assert line.until_continue() == "HTTP/1.1 100 Continue"
        line.send(body)
        answer = line.answer()
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}


def test_a_client_may_send_the_body_without_waiting_for_it(
    groups: Groups, service: Service
) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        data = request(
            "POST", events(NEWEST), METADATA, "Expect: 100-continue", body=approval(event.id)
        )
        line.send(data + GET)
        assert line.answer().status == 200
        assert line.answer().json()["Events"][0]["EventStatus"] == "Started"


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
def test_an_offer_to_speak_another_protocol_is_not_taken_up(guest: Guest, protocol: str) -> None:
    offer = request(
        "GET",
        events(NEWEST),
        METADATA,
        "Connection: Upgrade, HTTP2-Settings",
        f"Upgrade: {protocol}",
        "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    )
    with guest.line() as line:
        line.send(offer)
        answer = line.answer()
        assert answer.status == 200
        if answer.all("connection") != ["close"]:
            line.send(GET)
            assert line.answer().status == 200, "and the line is as good as before"


def test_an_approval_with_such_an_offer_is_read_whole(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    answer = guest.post(approval(event.id), NEWEST, "Connection: Upgrade", "Upgrade: h2c")
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}


# Tags.


def test_what_a_client_has_already_is_not_sent_again(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    service.schedule("Reboot", guest.name)
    for version in VERSIONS:
        tag = guest.get(version).header("etag")
        assert re.fullmatch(r'"[^"]+"', tag)
        bare = tag.strip('"')
        for form in (tag, bare, f"W/{tag}", f'"x", {tag}', f'W/"x",W/{tag},"y"', f"x, {bare}"):
            with guest.line() as line:
                line.send(request("GET", events(version), METADATA, f"If-None-Match: {form}"))
                answer = line.answer()
                assert answer.line == "HTTP/1.1 304 Not Modified"
                assert answer.header("etag") == tag
                assert answer.header("x-ms-request-id")
                assert set(answer.all("content-length")) <= {"0"}
                line.send(GET)
                assert line.answer().status == 200, "it had no body"


def test_a_tag_is_the_same_for_the_same_bytes_only(groups: Groups, service: Service) -> None:
    group = groups.awake()
    before = group[0].get().header("etag")
    assert group[1].get().header("etag") == before
    event = service.schedule("Reboot", group[0].name)
    scheduled = group[0].get(NEWEST, f"If-None-Match: {before}")
    assert scheduled.status == 200
    tags = {group[0].get(version).header("etag") for version in VERSIONS}
    bodies = {group[0].get(version).body for version in VERSIONS}
    assert len(tags) == len(bodies)
    group[0].approve(event.id)
    started = group[0].get(NEWEST, f"If-None-Match: {scheduled.header('etag')}")
    assert started.status == 200
    assert len({before, scheduled.header("etag"), started.header("etag")}) == 3


@pytest.mark.parametrize("form", ["0", '"0"', 'W/"0"', "1", '"1"', "2", '""', ",", "W/"])
def test_a_first_poll_with_a_tag_that_was_never_given_is_answered_in_full(
    guest: Guest, form: str
) -> None:
    answer = guest.get(NEWEST, f"If-None-Match: {form}")
    assert (answer.status, answer.body) == (200, b'{"DocumentIncarnation":1,"Events":[]}')


def test_a_post_is_never_answered_by_its_tag(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    tag = guest.get().header("etag")
    for form in (f"If-None-Match: {tag}", "If-None-Match: 0", "If-None-Match: *", "If-Match: x"):
        answer = guest.post(approval(event.id), NEWEST, form)
        assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}


# Bodies without end.


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(guest: Guest) -> None:
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Content-Length: 65537"))
        answer = line.answer()
        assert answer.status == 413
        assert isinstance(answer.json()["error"], str)
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_it_is_not_asked_for_either(guest: Guest) -> None:
    big = ("Content-Length: 1000000000", "Expect: 100-continue")
    answer = guest.say(request("POST", events(NEWEST), METADATA, *big))
    assert (answer.status, answer.interim) == (413, ())


def test_a_body_in_chunks_that_becomes_too_large_is_refused(guest: Guest) -> None:
    chunk = b"1000\r\n" + b" " * 4_096 + b"\r\n"
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked"))
        line.send(chunk * 17)
        answer = line.answer()
        assert answer.status == 413
        assert answer.header("connection") == "close"


def test_the_largest_body_that_is_taken(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    assert guest.post(approval(event.id).ljust(65_536)).status == 200
    assert guest.statuses() == {event.id: "Started"}


def test_an_approval_may_come_in_chunks(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    body = approval(event.id)
    chunks = b"".join(b"1;ext=1\r\n" + body[at : at + 1] + b"\r\n" for at in range(len(body)))
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked"))
        line.send(chunks + b"0\r\nTrailer: x\r\n\r\n" + GET)
        assert line.answer().status == 200
        assert line.answer().json()["Events"][0]["EventStatus"] == "Started"


@pytest.mark.parametrize(
    ("length", "begin"),
    [("Content-Length: 100", b'{"StartRequests":'), ("Transfer-Encoding: chunked", b"1\r\n{\r\n")],
)
def test_a_body_that_does_not_arrive_is_not_waited_for(
    guest: Guest, length: str, begin: bytes
) -> None:
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, length) + begin)
        answer = line.answer()
        assert answer.status == 408
        assert answer.header("connection") == "close"
        assert line.over() == b""


# What is not HTTP.

MALFORMED = [
    b"garbage\r\n\r\n",
    b"\x00\x01\x02\x03\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTX/1.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
    GET.replace(b"Metadata: true", b"Metadata true"),
    GET.replace(b"Metadata: true", b"Meta data: true"),
    GET.replace(b"Metadata: true", b"Metadata : true"),
    GET.replace(b"Metadata: true", b"Metadata: t\x00rue"),
    request("POST", events(NEWEST), METADATA, "Content-Length: -1"),
    request("POST", events(NEWEST), METADATA, "Content-Length: x"),
    request("POST", events(NEWEST), METADATA, "Content-Length: 2", "Content-Length: 3") + b"{}",
    request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked") + b"zz\r\n",
    request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked", "Content-Length: 2"),
]


@pytest.mark.parametrize("data", MALFORMED)
def test_what_is_not_http_is_told_so_like_everybody_else(guest: Guest, data: bytes) -> None:
    with guest.line() as line:
        line.send(data)
        answer = line.answer()
        assert answer.line == "HTTP/1.1 400 Bad Request"
        assert re.fullmatch(rb'\{"error":"Bad request\. [^"]+"\}', answer.body)
        assert answer.header("content-type") == "application/json; charset=utf-8"
        assert answer.header("connection") == "close"
        assert answer.header("date").endswith(" GMT")
        assert re.fullmatch(r"IMDS/\S+", answer.header("server"))
        assert answer.header("x-ms-request-id")
        assert line.over() == b""


def test_nothing_of_a_malformed_approval_takes_effect(groups: Groups, service: Service) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    body = approval(event.id)
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked"))
        line.send(chunk + b"not a chunk\r\n\r\n")
        assert line.answer().status == 400
    assert guest.statuses() == {event.id: "Scheduled"}


def test_a_good_request_is_answered_as_such_whatever_follows_it(
    groups: Groups, service: Service
) -> None:
    guest = groups.awake()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        line.send(
            request("POST", events(NEWEST), METADATA, body=approval(event.id)) + b"\0\0\r\n\r\n"
        )
        answer = line.answer()
    took_effect = guest.statuses() == {event.id: "Started"}
    assert (answer.status == 200) is took_effect, "refused means that nothing happened"

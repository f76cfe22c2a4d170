"""Bodies without end, and what is said to what is not HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from forewarn.metadata.endpoint.limits import Limits
from forewarn.testing import Service
from helpers.endpoint import METADATA, NEWEST, Caller, Groups, approval, events, fleet_of
from helpers.raw_http import request

COUNT = 8
GET = request("GET", events(NEWEST), METADATA)


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    limits = Limits(body_timeout=1.0)
    with Service(fleet_of(COUNT), sockets=True, front=True, limits=limits) as service:
        yield service


# Bodies without end.


def test_a_too_large_content_length_is_refused_before_the_body(guest: Caller) -> None:
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Content-Length: 65537"))
        answer = line.answer()
        assert answer.status == 413
        assert isinstance(answer.json()["error"], str)
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_a_too_large_body_gets_no_100_continue(guest: Caller) -> None:
    big = ("Content-Length: 1000000000", "Expect: 100-continue")
    answer = guest.say(request("POST", events(NEWEST), METADATA, *big))
    assert (answer.status, answer.interim) == (413, ())


def test_a_body_in_chunks_that_becomes_too_large_is_refused(guest: Caller) -> None:
    chunk = b"1000\r\n" + b" " * 4_096 + b"\r\n"
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked"))
        line.send(chunk * 17)
        answer = line.answer()
        assert answer.status == 413
        assert answer.header("connection") == "close"


def test_the_largest_allowed_body_is_accepted(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    assert guest.post(approval(event.id).ljust(65_536)).status == 200
    assert guest.statuses() == {event.id: "Started"}


def test_an_approval_may_come_in_chunks(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    body = approval(event.id)
    chunks = b"".join(b"1;ext=1\r\n" + body[at : at + 1] + b"\r\n" for at in range(len(body)))
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked"))
        line.send(chunks + b"0\r\nTrailer: x\r\n\r\n" + GET)
        assert line.answer().status == 200
        assert line.answer().json()["Events"][0]["EventStatus"] == "Started"


@pytest.mark.platform  # a setting: how long a body is waited for
@pytest.mark.parametrize(
    ("length", "begin"),
    [("Content-Length: 100", b'{"StartRequests":'), ("Transfer-Encoding: chunked", b"1\r\n{\r\n")],
)
def test_a_body_that_does_not_arrive_is_not_waited_for(
    guest: Caller, length: str, begin: bytes
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
def test_bytes_that_are_not_http_are_answered_400(guest: Caller, data: bytes) -> None:
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
    guest = groups.enabled()[0]
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
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        line.send(
            request("POST", events(NEWEST), METADATA, body=approval(event.id)) + b"\0\0\r\n\r\n"
        )
        answer = line.answer()
    took_effect = guest.statuses() == {event.id: "Started"}
    assert (answer.status == 200) is took_effect, "refused means that nothing happened"


@pytest.mark.parametrize("after", [b"\0\r\n\r\n", b"garbage\r\n\r\n", b"BREW\r\n\r\n"])
def test_every_request_before_garbage_is_answered_once_and_the_garbage_once(
    guest: Caller, after: bytes
) -> None:
    approve = request("POST", events(NEWEST), METADATA, body=approval("A"))
    with guest.line() as line:
        line.send(GET + approve + GET + after)
        assert [line.answer().status for _ in range(4)] == [200, 400, 200, 400]
        assert line.over() == b""


def test_an_unknown_method_between_good_requests_does_not_affect_them(guest: Caller) -> None:
    odd = request("BREW", events(NEWEST), METADATA)
    with guest.line() as line:
        line.send(GET + odd + GET)
        assert line.answer().status == 200
        refused = line.answer()
        assert refused.status in (400, 405)
        if refused.all("connection") == ["close"]:
            assert line.over() == b""
        else:
            assert line.answer().status == 200


def test_an_unknown_method_in_single_bytes_is_answered(guest: Caller) -> None:
    with guest.line() as line:
        line.send_in_bytes(request("BREW", events(NEWEST), METADATA))
        answer = line.answer()
        assert (answer.status, answer.all("allow")) == (405, ["GET, POST"])

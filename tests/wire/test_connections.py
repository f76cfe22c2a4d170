"""Connections: kept, one-shot, old, slow, half closed, and offers of another protocol."""

from __future__ import annotations

import pytest

from forewarn.testing import Service
from helpers.endpoint import METADATA, NEWEST, Caller, Groups, approval, events
from helpers.raw_http import request

COUNT = 20
GET = request("GET", events(NEWEST), METADATA)


def test_a_connection_is_kept(guest: Caller) -> None:
    with guest.line() as line:
        for _ in range(5):
            line.send(GET)
            answer = line.answer()
            assert answer.status == 200
            assert answer.all("connection") == []


def test_a_connection_is_kept_after_errors_and_approvals(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
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


def test_connection_close_is_answered_and_the_connection_closed(guest: Caller) -> None:
    with guest.line() as line:
        line.send(request("GET", events(NEWEST), METADATA, "Connection: close"))
        answer = line.answer()
        assert answer.status == 200
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_an_http_1_0_client_is_answered_and_the_connection_closed(guest: Caller) -> None:
    with guest.line() as line:
        line.send(GET.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: 169.254.169.254\r\n", b""))
        answer = line.answer()
        assert answer.status == 200
        assert answer.header("connection") == "close"
        assert line.over() == b""


def test_an_http_1_0_client_can_approve(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    data = request("POST", events(NEWEST), METADATA, body=approval(event.id))
    answer = guest.say(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.header("connection") == "close"
    assert guest.statuses() == {event.id: "Started"}


def test_a_half_closed_connection_is_answered(groups: Groups, service: Service) -> None:
    guest = groups.unpolled()[0]
    with guest.line() as line:
        line.send(GET)
        line.finish()
        assert line.answer().status == 200
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, body=approval(event.id)))
        line.finish()
        assert line.answer().status == 200
    assert guest.statuses() == {event.id: "Started"}


def test_a_request_may_come_in_single_bytes(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        line.send_in_bytes(GET)
        assert line.answer().status == 200
        line.send_in_bytes(request("POST", events(NEWEST), METADATA, body=approval(event.id)))
        assert line.answer().status == 200
    assert guest.statuses() == {event.id: "Started"}


def test_pipelined_requests_are_answered_in_order(guest: Caller) -> None:
    with guest.line() as line:
        line.send(GET + request("GET", "/nothing", METADATA) + request("GET", events(NEWEST)) + GET)
        assert [line.answer().status for _ in range(4)] == [200, 404, 400, 200]


def test_the_body_of_a_get_is_ignored(guest: Caller) -> None:
    with guest.line() as line:
        for _ in range(2):
            line.send(request("GET", events(NEWEST), METADATA, body=b"x" * 1_000))
            assert line.answer().status == 200


def test_a_target_may_be_absolute(guest: Caller) -> None:
    target = "http://169.254.169.254" + events(NEWEST)
    assert guest.say(request("GET", target, METADATA)).status == 200


def test_expect_continue_is_answered_before_the_body_is_sent(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
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
        assert line.head().line == "HTTP/1.1 100 Continue"
        line.send(body)
        answer = line.answer()
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}


def test_a_client_may_send_the_body_without_waiting_for_it(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    with guest.line() as line:
        data = request(
            "POST", events(NEWEST), METADATA, "Expect: 100-continue", body=approval(event.id)
        )
        line.send(data + GET)
        assert line.answer().status == 200
        assert line.answer().json()["Events"][0]["EventStatus"] == "Started"


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
def test_an_upgrade_is_ignored(guest: Caller, protocol: str) -> None:
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


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("sent", ["at once", "head first", "in bytes"])
def test_an_approval_with_an_upgrade_is_read_completely(
    groups: Groups, service: Service, sent: str, coding: str
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    body, framing = approval(event.id), f"Content-Length: {len(approval(event.id))}"
    if coding == "chunked":
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        framing = "Transfer-Encoding: chunked"
    offer = ("Connection: Upgrade", "Upgrade: h2c")
    head = request("POST", events(NEWEST), METADATA, *offer, framing)
    with guest.line() as line:
        if sent == "in bytes":
            line.send_in_bytes(head + body)
        elif sent == "head first":
            line.send(head)
            assert guest.instance().status == 200  # asked later: by now the head has been read
            line.send(body)
        else:
            line.send(head + body)
        answer = line.answer()
        assert (answer.status, answer.body) == (200, b"")
        if answer.all("connection") != ["close"]:
            line.send(GET)
            assert line.answer().json()["Events"][0]["EventStatus"] == "Started"
    assert guest.statuses() == {event.id: "Started"}

"""An answer that is followed by a close arrives, whatever its caller is still sending; and what is
sent after it is read for a while, and not for ever."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop
from structlog.testing import capture_logs

from forewarn.metadata.endpoint.limits import MAX_REFUSED_PER_MACHINE, Limits
from forewarn.metadata.http.exchange import Exchange
from forewarn.metadata.http.protocol import DISCARD_BYTES, MetadataProtocol
from forewarn.testing import Service
from helpers.endpoint import METADATA, NEWEST, Guest, approval, events, fleet_of
from helpers.polls import CHUNKED, GET, ODD, send_poll, until_closed
from helpers.raw_http import RawConnection, request
from helpers.waiting import until

TRIES = 3  # of what went wrong nine times in ten
REST = b"x" * 900_000  # what a caller sends before it looks for an answer
PIECE = 16_384  # bytes that it sends at a time
ROOM = 3  # connections of a machine
LIMITS = Limits(max_connections_per_machine=ROOM)
WAIT = ("GET", f"/forewarn/v1/wait?api-version={NEWEST}&timeout=60", METADATA, "If-None-Match: *")
CHUNKS = (b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 55


@pytest.fixture(
    scope="module",
    params=[("asyncio", True), ("uvloop", True), ("uvloop", False)],
    ids=["asyncio", "uvloop", "uvloop and no front"],
)
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    """On the loop of the test kit, and on the one of `serve`."""
    loop, front = request.param
    with pytest.MonkeyPatch.context() as patch:
        if loop == "uvloop":
            patch.setattr(asyncio, "new_event_loop", uvloop.new_event_loop)
        with Service(fleet_of(2), sockets=True, front=front, limits=LIMITS) as service:
            for n in range(2):
                Guest(service, f"web{n}_0").get()
            yield service


@pytest.fixture
def guest(service: Service) -> Guest:
    until_closed(service)
    # Limits that earlier tests have reached are logged every few seconds.
    service._session.run(forget_hits(service))
    return Guest(service, "web0_0")


async def forget_hits(service: Service) -> None:
    service._session.node.endpoint.counts._last_caller.clear()


def sent(line: RawConnection, data: bytes) -> None:
    """Send in pieces, so that there is more to be sent when the answer comes."""
    for at in range(0, len(data), PIECE):
        line.send(data[at : at + PIECE])


def with_length(verb: str, *headers: str) -> bytes:
    return request(verb, events(NEWEST), METADATA, *headers, body=REST)


CLOSED = {
    "chunks that are too large": (CHUNKED + CHUNKS, [413]),
    "a length that is too large": (with_length("POST"), [413]),
    "a length that is too large for what nobody reads": (with_length("PUT"), [405]),
    "chunks that are too many": (CHUNKED + b"1\r\n \r\n" * 9_000 + REST, [400]),
    "a chunk that is none": (CHUNKED + b"zz\r\n" + REST, [400]),
    "no HTTP": (b"\x16\x03\x01\r\n\r\n" + REST, [400]),
    "a head that is too long": (GET[:-2] + b"X: " + REST, [400]),
    "a trailer that is too long": (CHUNKED + b"0\r\nX: " + REST, [400]),
    "good, then no HTTP": (GET + ODD + b"\0\r\n\r\n" + REST, [200, 200, 400]),
    "more after the last": (ODD[:-2] + b"Connection: close\r\n\r\n" + REST, [200]),
}


@pytest.mark.parametrize("what", CLOSED)
def test_an_answer_before_a_close_arrives_while_more_is_being_sent(guest: Guest, what: str) -> None:
    data, statuses = CLOSED[what]
    for _ in range(TRIES):
        with guest.line() as line:
            sent(line, data)
            answers = [line.answer() for _ in statuses]
            assert [answer.status for answer in answers] == statuses
            assert answers[-1].header("connection") == "close"
            assert line.over() == b""
        until_closed(guest.service)


def test_the_refusal_of_one_connection_too_many_arrives_while_more_is_being_sent(
    service: Service, guest: Guest
) -> None:
    connections = service._session.node.endpoint.connections
    with contextlib.ExitStack() as stack:
        for _ in range(ROOM):
            assert send_poll(stack.enter_context(guest.line())).status == 200
        for data in (with_length("POST"), CHUNKED + CHUNKS, GET):
            for _ in range(TRIES):
                with guest.line() as line:
                    sent(line, data)
                    answer = line.answer()
                    assert (answer.status, answer.header("connection")) == (429, "close")
                    assert line.over() == b""
                # Of those that are being closed slowly there may be few: one more is cut off.
                until(lambda: not connections._refused)
        assert connections.total == ROOM


def test_data_after_the_last_answer_is_read_up_to_a_limit(guest: Guest) -> None:
    for data in (CHUNKED + CHUNKS, b"\0\r\n\r\n", ODD[:-2] + b"Connection: close\r\n\r\n"):
        with guest.line() as line:
            line.send(data)
            with pytest.raises(ConnectionError):
                line.send(b"x" * 64 * DISCARD_BYTES)


def test_connections_that_are_refused_and_kept_open_are_few(service: Service, guest: Guest) -> None:
    refused = service._session.node.endpoint.connections._refused
    with contextlib.ExitStack() as stack:
        for _ in range(ROOM):
            assert send_poll(stack.enter_context(guest.line())).status == 200
        for _ in range(10):
            line = stack.enter_context(guest.line())
            line.send(GET)
            assert line.answer().status == 429
            assert refused[guest.name] <= MAX_REFUSED_PER_MACHINE
    until(lambda: not refused)


# Half closed.


HALF_CLOSED: dict[str, tuple[bytes, list[int]]] = {
    "two polls and no HTTP": (GET + GET + b"\0\r\n\r\n", [200, 200, 400]),
    "two polls and a chunk that is none": (GET + GET + CHUNKED + b"zz\r\n", [200, 200, 400]),
    "polls and a chunk that is none": (GET * 9 + CHUNKED + b"zz\r\n", [200] * 9 + [400]),
    "many polls and no HTTP": (GET * 60 + b"\0\r\n\r\n", [200] * 60 + [400]),
    "polls": (GET * 60, [200] * 60),
    "polls and a part of one": (GET * 2 + GET[:20], [200, 200]),
    "an approval and a poll": (
        request("POST", events(NEWEST), METADATA, body=approval("A")) + GET,
        [400, 200],
    ),
    "a poll and a part of an approval": (
        GET + request("POST", events(NEWEST), METADATA, body=approval("A"))[:-9],
        [200],
    ),
    "a poll and chunks that are too large": (
        GET + CHUNKED + b"11170\r\n" + b"a" * 70_000 + b"\r\n0\r\n\r\n" + GET,
        [200, 413],
    ),
    "a long one": (request("POST", events(NEWEST), METADATA, body=b" " * 60_000) + GET, [400, 200]),
    "a wait": (request(*WAIT), [304]),
    "a wait with a body": (request(*WAIT, body=b"{}"), [304]),
    "a poll and a wait with a body": (ODD + request(*WAIT, body=b"{}"), [200, 304]),
}


@pytest.mark.parametrize("what", HALF_CLOSED)
def test_all_that_was_asked_before_a_half_close_is_answered(guest: Guest, what: str) -> None:
    data, statuses = HALF_CLOSED[what]

    async def asked_and_finished(line: RawConnection) -> None:
        """While the service's loop stands still, so that it finds both at once."""
        line.send(data)
        line.finish()

    for _ in range(TRIES):
        with guest.line() as line:
            guest.service._session.run(asked_and_finished(line))
            assert [line.answer().status for _ in statuses] == statuses
            assert line.over() == b""
        until_closed(guest.service)


# Offers to upgrade.

OFFER = ("Connection: Upgrade", "Upgrade: h2c")


@pytest.mark.parametrize("coding", ["identity", "gzip", "chunked, gzip", "x"])
def test_an_offer_with_a_body_that_has_no_end_is_refused_without_a_log_line(
    guest: Guest, coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = request("POST", events(NEWEST), METADATA, *OFFER, f"Transfer-Encoding: {coding}")
    with capture_logs() as lines:
        for _ in range(TRIES):
            with guest.line() as line:
                line.send(data)
                answer = line.answer()
                assert (answer.status, answer.header("connection")) == (400, "close")
                assert line.over() == b""
    assert [record.getMessage() for record in caplog.records] == []
    assert [line["event"] for line in lines] == []


# What goes wrong inside.


def test_a_failure_of_the_service_is_answered_500_and_logged_once(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forewarn.metadata.endpoint.app import MetadataApp
    from forewarn.metadata.http import exchange
    from forewarn.support.log_throttle import LogThrottle

    async def fails(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(MetadataApp, "_reply", fails)
    monkeypatch.setattr(exchange, "_failed", LogThrottle())
    with capture_logs() as lines:
        for _ in range(5):
            with guest.line() as line:
                line.send(ODD)
                answer = line.answer()
                assert (answer.status, answer.header("connection")) == (500, "close")
                assert line.over() == b""
    assert [line["log_level"] for line in lines] == ["error"]


def reset(line: RawConnection) -> None:
    line._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    line.close()


@pytest.mark.parametrize("gone", [reset, RawConnection.close], ids=["reset", "closed"])
def test_a_guest_that_leaves_while_its_connection_is_closed_leaves_nothing_behind(
    service: Service, guest: Guest, gone: Callable[[RawConnection], None]
) -> None:
    for data, _ in CLOSED.values():
        line = guest.line()
        with contextlib.suppress(OSError):
            line.send(data)
        gone(line)
        until_closed(service)
    until(lambda: service._session.node.endpoint.buffered.total == 0)


@pytest.mark.parametrize("data", [b"no HTTP\r\n\r\n", with_length("PUT")[:500]])
def test_a_caller_that_left_before_its_refusal_is_closed_at_once_without_a_log_line(
    service: Service, guest: Guest, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def send_and_go(line: RawConnection) -> None:  # while the service's loop stands still
        line.send(data)
        line.close()

    with capture_logs() as lines:
        line = guest.line()
        assert send_poll(line, ODD).status == 200
        service._session.run(send_and_go(line))
        until_closed(service)
    assert [record.getMessage() for record in caplog.records] == []
    assert [line["event"] for line in lines] == []


def test_a_connection_whose_body_was_still_to_be_read_when_the_service_stopped_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = MetadataProtocol.answered

    def answered_and_stopped(self: MetadataProtocol, exchange: Exchange) -> None:
        answered(self, exchange)
        self.shutdown()

    monkeypatch.setattr(MetadataProtocol, "answered", answered_and_stopped)
    with (
        Service(fleet_of(1), sockets=True, front=True) as service,
        Guest(service, "web0_0").line() as line,
    ):
        line.send(request("PUT", events(NEWEST), METADATA, body=b"x" * 60_000))
        assert line.answer().status == 405
        assert line.over() == b""

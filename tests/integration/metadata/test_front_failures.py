"""Front when something goes wrong: with one caller, with itself, or with everybody at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.http.front import LEARNED_PER_SECOND, Front
from forewarn.metadata.http.known_polls import ALLOWED, MAX_POLL_BYTES
from forewarn.metadata.http.request_parser import SLICE, RequestParser
from forewarn.node.listening import serve
from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import Guest, fleet_of
from helpers.polls import CHUNKED, GET, ODD, send_poll
from helpers.waiting import LIMIT, until


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(fleet_of(2), sockets=True, front=True) as service:
        for name in ("web0_0", "web1_0"):
            Guest(service, name).get()
        yield service


def test_a_failure_with_one_caller_does_not_affect_the_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = Guest(service, "web0_0"), Guest(service, "web1_0")
    answer_poll = MetadataApp.answer_poll

    def moody(self: MetadataApp, known_poll: Any, address: str) -> bytes | None:
        if address == bad.place[0]:
            raise RuntimeError("a page that does not render")
        return answer_poll(self, known_poll, address)

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(bad.line())
        others = [stack.enter_context(good.line()) for _ in range(20)]
        for line in (first, *others):
            assert send_poll(line).status == 200
        monkeypatch.setattr(MetadataApp, "answer_poll", moody)

        async def all_at_once() -> None:  # so that one look finds them all
            for line in (first, *others):
                line.send(GET)

        service._session.run(all_at_once())
        assert first.over() == b""
        assert {line.answer().status for line in others} == {200}


def test_a_connection_that_cannot_be_handed_over_is_closed_and_logged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def fails(*_: object) -> None:
        raise RuntimeError("no transport")

    monkeypatch.setattr(service._session.run(loop()), "connect_accepted_socket", fails)
    with capture_logs() as lines, Guest(service, "web0_0").line() as line:
        line.send(ODD)
        assert line.over() == b""
        until(lambda: bool(lines))
    assert [line["caller"] for line in lines] == ["web0_0"]
    assert service._session.node.endpoint.connections.total == 0


def test_a_machine_whose_every_poll_is_different_takes_the_slow_path(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = guard.monotonic()
    monkeypatch.setattr(guard, "monotonic", lambda: now)
    front = service._session.node.front
    assert front is not None
    handed_over = front.handed_over
    with Guest(service, "web0_0").line() as line:
        for n in range(LEARNED_PER_SECOND + 1):
            assert send_poll(line, GET[:-2] + b"Accept: %d\r\n\r\n" % n).status == 200
    assert front.handed_over == handed_over + 1
    with Guest(service, "web1_0").line() as line:
        assert send_poll(line, GET[:-2] + b"Accept: other\r\n\r\n").status == 200
    assert front.handed_over == handed_over + 1, "the others do not"


def test_a_flood_of_connections_does_not_keep_the_service_from_stopping(service: Service) -> None:
    place, over = Guest(service, "web0_0").place, threading.Event()

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(place, timeout=1) as caller:
                caller.sendall(b"G")

    callers = [threading.Thread(target=flood) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        service._session.submit(service._session.node.__aexit__(None, None, None)).result(LIMIT)
    finally:
        over.set()
        for caller in callers:
            caller.join()


@pytest.mark.parametrize(
    "body", [b"\r\n\r\n" * 64_000, b"x" * 256_000], ids=["ends everywhere", "plain"]
)
def test_a_body_that_is_too_large_is_not_worked_through(
    service: Service, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    consumed: list[int] = []
    consume = RequestParser.consume

    def watched(self: RequestParser, data: bytes, limits: Limits) -> int:
        consumed.append(consume(self, data, limits))
        return consumed[-1]

    monkeypatch.setattr(RequestParser, "consume", watched)
    guest = Guest(service, "web0_0")
    with guest.line() as line:
        with contextlib.suppress(OSError):
            line.send(CHUNKED + b"%x\r\n" % len(body) + body)
        assert line.answer().status == 413
    assert sum(consumed) < Limits().max_body + 2 * SLICE + len(CHUNKED)


def test_a_body_in_very_many_chunks_is_refused(service: Service) -> None:
    with Guest(service, "web0_0").line() as line:
        with contextlib.suppress(OSError):
            line.send(CHUNKED + b"1\r\nx\r\n" * 20_000)
        assert line.answer().status == 400


@pytest.mark.parametrize(
    "limits",
    [Limits(max_head=MAX_POLL_BYTES - 1), Limits(max_head_lines=len(ALLOWED) - 1)],
    ids=["max_head", "max_head_lines"],
)
def test_where_a_poll_may_be_too_long_there_is_no_front(limits: Limits) -> None:
    with Service(fleet_of(1), sockets=True, front=True, limits=limits) as service:
        assert service._session.node.front is None


def test_a_sweep_that_fails_for_one_is_made_for_the_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept = threading.Event()

    def fails(self: Front, now: float) -> Iterator[None]:
        swept.set()
        raise RuntimeError("cannot look")
        yield

    monkeypatch.setattr(serve, "SWEEP_EVERY", 0.01)
    monkeypatch.setattr(Front, "sweep", fails)
    for _ in range(2):
        swept.clear()
        assert swept.wait(LIMIT), "it is tried again"
    assert Guest(service, "web0_0").get().status == 200

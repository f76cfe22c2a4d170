"""A connection that is kept, of either kind, against servers that say exactly this and no more."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from forewarn.client import exchange, pace
from forewarn.client.async_connection import AsyncConnection
from forewarn.client.connection import Connection
from forewarn.client.steps import Location, Request, Response
from forewarn.node.listening.sockets import has_many_loopback_addresses
from helpers.client_connections import LINES, AnyLine, Raw, raw, read_head
from helpers.waiting import LIMIT

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(params=list(LINES))
def line(request: pytest.FixtureRequest) -> Iterator[AnyLine]:
    made = LINES[request.param]()
    yield made
    made.close()


def asked(line: AnyLine, server: Raw, within: float = 10.0, **more: object) -> Response:
    ask = Request(
        location=server.location,
        target="/x",
        connect_timeout=5.0,
        timeout=within,
        **more,  # type: ignore[arg-type]
    )
    return line.send(ask)


def test_a_connection_is_kept_and_headers_are_as_they_should_be(line: AnyLine) -> None:
    with raw(OK, OK, b"HTTP/1.1 304 Not Modified\r\nETag: t\r\n\r\n") as server:
        first = asked(line, server)
        asked(line, server, etag='"é"')
        last = asked(line, server, method="POST", body=b"{}")
        assert (first.status, first.body, first.source) == (200, b"{}", "127.0.0.1")
        assert (last.status, last.header("etag")) == (304, "t")
        assert server.connections == 1
    get, tagged, post = server.heads
    authority = server.location.authority.encode()
    assert get.startswith(b"GET /x HTTP/1.1\r\nHost: " + authority + b"\r\nMetadata: true\r\n")
    assert b"If-None-Match" not in get
    assert 'If-None-Match: "é"'.encode("latin-1") in tagged, "as it came"
    assert b"Content-Length: 2\r\n" in post
    assert post.startswith(b"POST /x ")
    for head in server.heads:
        assert b"forwarded" not in head.lower()
        assert b"Expect" not in head


def test_a_connection_closed_meanwhile_is_reopened(line: AnyLine) -> None:
    with raw(OK) as server:  # and hangs up without a word
        assert [asked(line, server).status for _ in range(4)] == [200] * 4
        assert server.connections == 4


def test_a_second_answer_is_not_taken_for_the_next_one(line: AnyLine) -> None:
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    server = Raw(
        lambda connection: server.says(OK + late, OK)(connection),
        lambda connection: server.says(OK)(connection),
    )
    with server:
        assert [asked(line, server).status for _ in range(2)] == [200, 200]
        assert server.connections == 2


def test_an_answer_without_a_request_is_not_taken_for_the_next_one(line: AnyLine) -> None:
    go, gone = threading.Event(), threading.Event()

    def idle(connection: socket.socket) -> None:
        server.says(OK)(connection)
        go.wait(10)
        connection.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        gone.set()
        connection.recv(1)  # until the other side gives up

    server = Raw(idle, lambda connection: server.says(OK)(connection))
    with server:
        assert asked(line, server).status == 200
        go.set()
        assert gone.wait(10)
        assert asked(line, server).status == 200
        assert server.connections == 2


def test_a_connection_that_breaks_on_reuse_is_reopened_once(line: AnyLine) -> None:
    server = Raw(
        lambda connection: server.says(OK, b"")(connection),
        lambda connection: server.says(OK)(connection),
    )
    with server:
        assert [asked(line, server).status for _ in range(2)] == [200, 200]
        assert (server.connections, len(server.heads)) == (2, 3)


def test_a_connection_is_closed_after_connection_close_or_http_1_0(line: AnyLine) -> None:
    once = OK.replace(b"Content", b"Connection: close\r\nContent")
    old = b"HTTP/1.0 200 OK\r\n\r\n{}"
    server = Raw(
        lambda connection: server.says(once)(connection),
        lambda connection: server.says(old)(connection),
    )
    with server:
        assert [asked(line, server).body for _ in range(2)] == [b"{}", b"{}"]


@pytest.mark.parametrize(
    ("response", "trouble", "kept"),
    [
        (b"", "reset", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "cut", b"{}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "cut", b"{}"),
        (b"HTTP/1.1 200 OK\r\nCont", "cut", b""),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not-http", b""),
        (b"\x15\x03\x01\x00\x02\x02\x16", "not-http", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "not-http", b""),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * exchange.MAX_HEAD, "not-http", b""),
    ],
    ids=["nothing", "half", "half in chunks", "half a head", "ssh", "tls", "nonsense", "endless"],
)
def test_an_invalid_answer_is_a_failure(
    line: AnyLine, response: bytes, trouble: str, kept: bytes
) -> None:
    with raw(response) as server:
        answer = asked(line, server)
        assert (answer.status, answer.failure, answer.body) == (None, trouble, kept)
        assert asked(line, server).failure == trouble, "and the next is asked on another connection"


def test_no_more_is_read_than_is_allowed(line: AnyLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER", 1_000)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    with raw(long) as server:
        answer = asked(line, server)
    assert (answer.status, answer.failure, len(answer.body)) == (None, "too-long", 1_000)


def test_an_answer_that_does_not_come_is_given_up(
    line: AnyLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STALL", 0.05)
    server = Raw(
        lambda connection: server.hangs()(connection),
        lambda connection: server.hangs(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")(
            connection
        ),
        lambda connection: server.says(OK)(connection),
    )
    with server:
        assert asked(line, server, 0.05).failure == "late"
        stalled = asked(line, server, 600.0)
        assert (stalled.failure, stalled.body) == ("stalled", b"{}")
        assert asked(line, server).status == 200


@pytest.mark.parametrize(("stall", "trouble"), [(0.01, "stalled"), (60.0, "too-long")])
def test_an_endless_answer_is_given_up(
    line: AnyLine, stall: float, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STALL", stall)
    monkeypatch.setattr(exchange, "MAX_ANSWER", 10_000 if trouble == "too-long" else 10**9)

    def endless(connection: socket.socket) -> None:
        read_head(connection)
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with Raw(endless) as server:
        assert asked(line, server, 60.0).failure == trouble


@pytest.mark.skipif(
    not has_many_loopback_addresses(), reason="this system has only one loopback address"
)
def test_a_name_with_several_addresses_is_asked_at_the_first_that_answers(
    line: AnyLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw(OK) as server, socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.2", server.location.port))
        full.listen(0)
        for filling in (one, two):  # whoever comes now waits for ever
            filling.setblocking(False)
            filling.connect_ex(full.getsockname())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, server.location.port))
            for host in ("127.0.0.2", "127.0.0.1")
        ]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *more, **kw: found if host == "both.test" else real(host, *more, **kw),
        )
        place = Location("both.test", server.location.port)
        # Each address has so long, which has to be enough for the second one on a busy machine.
        answer = line.send(Request(location=place, target="/x", connect_timeout=2.0, timeout=LIMIT))
        assert (answer.status, answer.failure) == (200, "")


def test_a_reset_connection_is_a_failure(line: AnyLine) -> None:
    def torn(connection: socket.socket) -> None:
        read_head(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with Raw(torn) as server:
        assert asked(line, server).failure == "reset"


def test_unreachable_addresses_are_failures(line: AnyLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for place, trouble in (
        (Location("127.0.0.1", port), "refused"),
        (Location("nobody.invalid"), "unreachable"),
        (Location("x" * 64 + ".invalid"), "unreachable"),
        (Location("::ffff:0:0", 9), "unreachable"),
    ):
        answer = line.send(Request(location=place, target="/", connect_timeout=5.0, timeout=1.0))
        assert (answer.status, answer.failure in (trouble, "refused")) == (None, True), place


def test_another_address_is_another_connection(line: AnyLine) -> None:
    with raw(OK, OK) as one, raw(OK, OK) as other:
        assert [asked(line, server).status for server in (one, other, one)] == [200] * 3
        assert (one.connections, other.connections) == (2, 1)


def test_a_wait_in_another_thread_can_be_interrupted() -> None:
    line = Connection()
    server = Raw(lambda connection: server.hangs()(connection))
    answers: list[Response] = []
    with server:
        waiting = threading.Thread(target=lambda: answers.append(asked(line, server, 600.0)))
        waiting.start()
        while not server.heads:
            pass  # it has not asked yet
        line.interrupt()
        waiting.join(10)
    assert [answer.failure for answer in answers] == ["reset"]
    with raw(OK) as server:
        assert asked(line, server).failure == "reset", "for good"


def test_a_cancelled_request_leaves_no_answer_behind() -> None:
    async def asking(server: Raw) -> Response:
        line = AsyncConnection()
        ask = Request(location=server.location, target="/x", connect_timeout=5.0, timeout=600.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await line.send(ask)
        answer = await line.send(ask)
        line.close()
        return answer

    def slow(connection: socket.socket) -> None:
        read_head(connection)
        if read_head(connection):
            connection.sendall(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n" * 2)

    server = Raw(slow, lambda connection: server.says(OK)(connection))
    with server:
        assert asyncio.run(asking(server)).status == 200


def test_an_interrupted_request_leaves_no_answer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Connection()
    with raw(OK, OK) as server:
        with monkeypatch.context() as patched:
            patched.setattr(exchange.Exchange, "feed", _interrupted)
            with pytest.raises(KeyboardInterrupt):
                asked(line, server)
        assert asked(line, server).status == 200
        assert server.connections == 2
    line.close()


def _interrupted(*_: object) -> bool:
    raise KeyboardInterrupt

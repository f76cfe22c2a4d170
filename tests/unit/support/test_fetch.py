"""Answers of servers, good ones and others, and what is said of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from forewarn.support.fetch import Answer, FetchFailed, fetch

LONG = b"x" * 200_000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path:
            case "/moved":
                self.send_response(302)
                self.send_header("Location", "/long")
                self.end_headers()
            case "/long":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(LONG)
            case "/host":
                self.send_response(200)
                self.end_headers()
                self.wfile.write(self.headers["Host"].encode())
            case raw:
                self.wfile.write(bytes.fromhex(raw[1:]))

    def do_POST(self) -> None:
        self.send_response(201)
        self.end_headers()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(self.headers["Content-Type"].encode() + b":" + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


def got(url: str, max_body: int = 1_000_000) -> Answer:
    return asyncio.run(fetch(url, max_body=max_body))


def test_a_body_is_read_to_its_end(server: str) -> None:
    assert got(f"{server}/long") == Answer(200, LONG)
    assert got(f"{server}/host").body == server.removeprefix("http://").encode()


def test_a_redirect_is_an_answer(server: str) -> None:
    assert got(f"{server}/moved").status == 302


def test_a_body_that_is_not_wanted_is_not_read(server: str) -> None:
    assert got(f"{server}/long", max_body=0) == Answer(200, b"")


def test_a_body_is_sent(server: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = asyncio.run(fetch(server, max_body=99, method="POST", headers=form, body=b"a=1"))
    assert answer == Answer(201, b"application/x-www-form-urlencoded:a=1")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "closed without an answer"),
        (b"SSH-2.0-OpenSSH_9 secret\r\n", "not HTTP"),
        (b"HTTP/1.1 20", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300, "not HTTP"),
    ],
)
def test_an_invalid_answer_fails_without_being_repeated(server: str, raw: bytes, why: str) -> None:
    with pytest.raises(FetchFailed) as failed:
        got(f"{server}/{raw.hex()}")
    assert str(failed.value) == why


def test_a_longer_body_than_wanted_fails(server: str) -> None:
    with pytest.raises(FetchFailed, match="longer than 100 bytes"):
        got(f"{server}/long", max_body=100)


@pytest.mark.parametrize(
    "url",
    [
        lambda: f"http://127.0.0.1:{_closed_port()}",
        lambda: "http://127.0.0.1:1/with a space",
    ],
)
def test_a_request_that_cannot_be_sent_fails(url: Callable[[], str]) -> None:
    with pytest.raises(FetchFailed):
        got(url())


def _closed_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        return server.server_port

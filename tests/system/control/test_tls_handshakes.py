"""Whoever does not speak TLS properly to the control API costs the log one line a minute, and never
a traceback."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator

import pytest

from helpers.certificates import Authority
from helpers.serve_process import ServeProcess, running_service, write_settings
from helpers.waiting import LIMIT, until

FAILED = "a TLS handshake"
NAME = "forewarn.example"
HANDSHAKE = b"\x16"  # the first byte of such a record; that of an alert is another


def client_hello(name: bytes) -> bytes:
    """The first bytes of a handshake, with this in place of the server's name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    hello = outgoing.read()
    assert hello.count(NAME.encode()) == 1
    assert len(name) == len(NAME)
    return hello.replace(NAME.encode(), name)


HELLO = client_hello(NAME.encode())
SENT = {
    "a non-ASCII name": client_hello(b"\xff\xfe" + NAME.encode()[2:]),
    "a name with a zero byte": client_hello(b"\0" + NAME.encode()[1:]),
    "plain HTTP": b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "noise": bytes(range(256)),
    "half a greeting": HELLO[: len(HELLO) // 2],
    "a record of no known type": b"\x63" + HELLO[1:],
    "a record that is too long": HELLO[:3] + b"\xff\xff" + bytes(70_000),
    "a greeting that contradicts itself": HELLO[:-9],
    "nothing": b"",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServeProcess, Authority]]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    pair = authority.issue("127.0.0.1")
    settings = write_settings(
        directory, f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    )
    with running_service(directory, settings) as running:
        yield running, authority


def lines(service: ServeProcess, words: str) -> list[str]:
    return [line for line in service.running.stderr if words in line]


def answer_to(place: tuple[str, int], sent: bytes) -> bytes:
    response = b""
    with (
        contextlib.suppress(OSError),  # it may hang up in the middle
        socket.create_connection(place, 20) as line,
    ):
        line.sendall(sent)
        line.shutdown(socket.SHUT_WR)
        while block := line.recv(65_536):
            response += block
    return response


def assert_cut_off_after_noise(place: tuple[str, int], authority: Authority) -> None:
    """A connection that was made properly, and then something else is sent on it."""
    with socket.create_connection(place, 20) as plain:
        secured = authority.trusted().wrap_socket(plain, server_hostname=place[0])
        with socket.socket(fileno=secured.detach()) as line:
            line.settimeout(20)
            line.sendall(SENT["noise"])
            with contextlib.suppress(ConnectionResetError):
                while line.recv(65_536):
                    pass


def test_a_handshake_that_fails_is_one_line_of_the_log(
    service: tuple[ServeProcess, Authority],
) -> None:
    process, authority = service
    place = "127.0.0.1", int(process.control.rpartition(":")[2])
    answers = {what: answer_to(place, sent) for what, sent in SENT.items()}
    # One certificate serves all names: the handshake goes on, and the caller decides.
    assert answers["a non-ASCII name"].startswith(HANDSHAKE)
    assert b"HTTP/" not in answers["plain HTTP"]
    assert_cut_off_after_noise(place, authority)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=authority.trusted())
    )
    with opener.open(f"{process.control}/v1/status", timeout=LIMIT) as answer:
        assert answer.status == 200
    until(lambda: bool(lines(process, FAILED)))
    (line,) = lines(process, FAILED)  # once a minute, however often
    reported = json.loads(line)
    assert (reported["address"], reported["times"]) == ("127.0.0.1", 1)
    assert reported["why"]
    assert process.running.stop() == 0
    for response in process.running.stderr:
        assert isinstance(json.loads(response), dict), response  # no traceback in between

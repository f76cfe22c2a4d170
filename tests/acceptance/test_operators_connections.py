"""Who has no token cannot use up the control API: slow heads, endless heads, bodies that nobody
reads, and more connections than there is room for."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from bearing import FLEET, Api, bearing

from forewarn.control import protocol
from forewarn.core.access import Role
from forewarn.testing import Service


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(protocol, "OPERATOR_HEAD_TIMEOUT", 1.0)
    monkeypatch.setattr(protocol, "UNREAD_TIMEOUT", 1.0)
    with Service(FLEET, sockets=True) as service:
        yield bearing(service, "alice", Role.ADMIN)


def connected(api: Api) -> socket.socket:
    port = int(api.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), 20)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    said = b""
    try:
        while block := connection.recv(65_536):
            said += block
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("begun", [b"", b"GET /v1/status HT", b"GET / HTTP/1.1\r\nHost: localhost"])
def test_a_head_that_does_not_come_is_not_waited_for(api: Api, begun: bytes) -> None:
    with connected(api) as connection:
        connection.sendall(begun)
        assert rest(connection) == b""
    assert api.get("/v1/status").status == 200


def test_neither_is_the_second_on_a_connection(api: Api) -> None:
    with connected(api) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        rest(connection)


def test_a_head_without_end_is_cut_off(api: Api) -> None:
    with connected(api) as connection:
        connection.sendall(b"GET /v1/status HTTP/1.1\r\n")
        try:
            for n in range(100):
                connection.sendall(b"X-%d: %b\r\n" % (n, b"x" * 4_096))
        except OSError:
            pass
        assert rest(connection)[:12] in (b"HTTP/1.1 400", b"")
    assert api.get("/v1/status").status == 200


def test_a_body_that_nobody_reads_is_not_waited_for(api: Api) -> None:
    head = b"PUT /v1/fleet HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(api) as connection:
        connection.sendall(head + b"Content-Length: 1000000\r\n\r\n{")
        said = rest(connection)
    assert said.startswith(b"HTTP/1.1 401")


def test_who_refuses_a_large_body_can_still_be_understood(api: Api) -> None:
    """The answer is not lost because the rest of the body is still on its way."""
    nobody = Api(api.url, "fw_00000000_" + "x" * 43)
    assert nobody.call("PUT", "/v1/fleet", b" " * 3_000_000).status == 401


def test_what_takes_long_to_answer_is_not_cut_off(api: Api) -> None:
    """Whoever was let in waits for as long as it likes: here, twice as long as for a head."""
    after = api.get("/v1/changes").json()["next"]
    assert api.get(f"/v1/changes?after={after}&wait=2").status == 200


def test_there_is_room_for_so_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "OPERATOR_HEAD_TIMEOUT", 60.0)
    monkeypatch.setattr(protocol, "MAX_OPERATOR_CONNECTIONS", 3)
    held = [connected(api) for _ in range(3)]
    for connection in held:  # an answer says that it is one of them
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    full = api.get("/healthz")
    assert (full.status, "too many connections" in full.detail) == (503, True)
    for connection in held:
        connection.close()

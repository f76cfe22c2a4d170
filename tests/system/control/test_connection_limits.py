"""Who has no token cannot use up the control API: slow heads, endless heads, bodies that nobody
reads, and more connections than there is room for."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.control.server import acceptor, connections, protocol
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.certificates import Authority
from helpers.serve_process import running_service, write_settings
from helpers.token_api import FLEET, Api, api_with_token
from helpers.waiting import until


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(protocol, "OPERATOR_HEAD_TIMEOUT", 1.0)
    monkeypatch.setattr(protocol, "UNREAD_TIMEOUT", 1.0)
    with Service(FLEET, sockets=True) as service:
        yield api_with_token(service, "alice", Role.ADMIN)


def connected(api: Api, source: str = "127.0.0.1") -> socket.socket:
    port = int(api.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), 20, (source, 0))


def following(api: Api) -> socket.socket:
    """A connection that is being answered for as long as it lasts, and has had the first of it."""
    connection = connected(api)
    head = f"GET /v1/feed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api.token}\r\n\r\n"
    connection.sendall(head.encode())
    response = b""
    while b"event: hello" not in response or not response.endswith(b"\n\n\r\n"):
        block = connection.recv(65_536)
        assert block, response
        response += block
    return connection


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side hangs up."""
    response = b""
    try:
        while block := connection.recv(65_536):
            response += block
    except ConnectionResetError:
        pass
    return response


@pytest.mark.parametrize("begun", [b"", b"GET /v1/status HT", b"GET / HTTP/1.1\r\nHost: localhost"])
def test_a_head_that_does_not_come_is_not_waited_for(api: Api, begun: bytes) -> None:
    with connected(api) as connection:
        connection.sendall(begun)
        assert rest(connection) == b""
    assert api.get("/v1/status").status == 200


def test_a_second_head_on_a_connection_is_not_waited_for_either(api: Api) -> None:
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


def test_the_lines_of_a_head_are_limited(api: Api) -> None:
    host = "Host: localhost\r\nConnection: close\r\n"
    for more, status in ((0, b"200"), (1, b"400")):
        with connected(api) as connection:
            lines = "a:\r\n" * (protocol.MAX_OPERATOR_LINES - 2 + more)
            connection.sendall(f"GET /healthz HTTP/1.1\r\n{host}{lines}\r\n".encode())
            assert rest(connection)[9:12] == status


def test_a_body_that_nobody_reads_is_not_waited_for(api: Api) -> None:
    head = b"PUT /v1/fleet HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(api) as connection:
        connection.sendall(head + b"Content-Length: 1000000\r\n\r\n{")
        response = rest(connection)
    assert response.startswith(b"HTTP/1.1 401")


def test_a_refusal_of_a_large_body_is_received_by_the_client(api: Api) -> None:
    """The answer is not lost because the rest of the body is still on its way."""
    nobody = Api(api.url, "fw_00000000_" + "x" * 43)
    assert nobody.call("PUT", "/v1/fleet", b" " * 3_000_000).status == 401


def test_what_takes_long_to_answer_is_not_cut_off(api: Api) -> None:
    """Whoever was let in waits for as long as it likes: here, twice as long as for a head."""
    after = api.get("/v1/changes").json()["next"]
    assert api.get(f"/v1/changes?after={after}&wait=2").status == 200


def test_the_number_of_requests_in_progress_is_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_OPERATOR_CONNECTIONS", 3)
    held = [following(api) for _ in range(3)]
    full = api.get("/healthz")
    assert (full.status, "too many connections" in full.detail) == (503, True)
    for connection in held:
        connection.close()
    until(lambda: api.get("/healthz").status == 200)


def test_the_number_of_connections_of_one_address_is_limited(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_OPERATOR_SHARE", 2)
    held = [following(api) for _ in range(2)]
    assert api.get("/healthz").status == 503
    with connected(api, "127.0.0.9") as other:
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert other.recv(65_536).startswith(b"HTTP/1.1 200")
    for connection in held:
        connection.close()


def test_only_idle_connections_are_closed_to_make_room(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what has not asked yet, nor what has been answered, keeps a newcomer out."""
    monkeypatch.setattr(protocol, "OPERATOR_HEAD_TIMEOUT", 60.0)
    monkeypatch.setattr(connections, "MAX_OPERATOR_CONNECTIONS", 3)
    stream, silent, answered = following(api), connected(api), connected(api)
    answered.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    response = b""
    while not response.endswith(b"}"):
        block = answered.recv(65_536)
        assert block, response
        response += block
    newcomer = following(api)
    assert rest(silent) == b""
    another = following(api)
    assert rest(answered) == b""
    assert api.get("/healthz").status == 503
    for gone in (silent, answered):
        gone.close()
    for connection in (stream, newcomer, another):
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.close()


def test_a_handshake_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with Service(FLEET, sockets=True, tls=authority.issue("127.0.0.1")) as service:
        api = Api(service.control_url, tls=authority.trusted())
        with monkeypatch.context() as patch:
            patch.setattr(acceptor, "HANDSHAKE_TIMEOUT", 0.5)
            with connected(api) as silent, connected(api) as halfway:
                halfway.sendall(b"\x16\x03\x01")
                assert (rest(silent), rest(halfway)) == (b"", b"")
        with connected(api) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"HTTP/1.1 200" not in rest(plain)
        assert api.get("/healthz").status == 200


HALVES = {  # what is sent before the caller says no more, and how many answers it is owed
    "a question": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
    "the last question": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        1,
    ),
    "two questions": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2, 2),
    "a question that takes longer": (b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
    "a question with a body": (
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        1,
    ),
    "a question and half of one": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nHo",
        1,
    ),
    "a question and one without its body": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /v1/events HTTP/1.1\r\n"
        b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
        1,
    ),
    "half a question": (b"GET /healthz HTTP/1.1\r\nHo", 0),
    "a question without its body": (
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 9\r\n\r\n{",
        0,
    ),
    "nothing": (b"", 0),
}


def halved(place: tuple[str, int], sent: bytes) -> bytes:
    with socket.create_connection(place, 20) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return rest(connection)


@pytest.fixture(scope="module", params=["in a test", "for real"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """Two event loops: the standard library's, and the one that `serve` has."""
    if request.param == "in a test":
        with Service(FLEET, sockets=True) as service:
            yield "127.0.0.1", int(service.control_url.rpartition(":")[2])
        return
    directory = tmp_path_factory.mktemp("served")
    with running_service(directory, write_settings(directory)) as running:
        yield "127.0.0.1", int(running.control.rpartition(":")[2])


@pytest.mark.parametrize("what", HALVES)
def test_a_client_that_has_closed_its_side_is_still_answered(
    place: tuple[str, int], what: str
) -> None:
    """Whole, and then hung up on; what was not said to the end is not answered."""
    sent, owed = HALVES[what]
    response = halved(place, sent)
    answers = response.split(b"HTTP/1.1 ")[1:]
    assert len(answers) == owed, response
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
        assert length == [b"content-length: %d" % len(body)]

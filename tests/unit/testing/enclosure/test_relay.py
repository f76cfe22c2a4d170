"""What is relayed arrives as it was said, and ends as it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing.enclosure.relay import MAX_UNSENT, Relay

PATIENCE = 90.0  # seconds after which a test has failed
ANYWHERE = ("127.0.0.1", 0)
RESET = struct.pack("ii", 1, 0)


class Line:
    """A relay in a thread of its own, between a client and a server of the test."""

    def __init__(self) -> None:
        self.relay = Relay()
        self.server = socket.create_server(ANYWHERE, backlog=512)
        self.server.settimeout(PATIENCE)
        self.listener = socket.create_server(ANYWHERE, backlog=512)
        self.relay.tcp(self.listener, self.server.getsockname())
        self._wake, self._woken = socket.socketpair()
        self.relay.watch(self._woken.fileno(), self.relay.stop)
        self._thread = threading.Thread(target=self.relay.run)
        self._thread.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), PATIENCE)

    def accept(self) -> socket.socket:
        accepted, _ = self.server.accept()
        accepted.settimeout(PATIENCE)
        return accepted

    def pair(self) -> tuple[socket.socket, socket.socket]:
        client = self.connect()
        return client, self.accept()

    def open_connections(self) -> int:
        return len(self.relay.tcp_relays)

    def close(self) -> None:
        self._wake.send(b".")
        self._thread.join(PATIENCE)
        self.relay.close()
        for one in (self.server, self.listener, self._wake, self._woken):
            one.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    with contextlib.closing(made):
        yield made


def test_bytes_go_both_ways_and_a_connection_is_kept(line: Line) -> None:
    client, server = line.pair()
    with client, server:
        for number in range(3):
            client.sendall(b"question %d" % number)
            assert server.recv(100) == b"question %d" % number
            server.sendall(b"answer %d" % number)
            assert client.recv(100) == b"answer %d" % number


def test_a_half_closed_connection_receives_the_answer(line: Line) -> None:
    client, server = line.pair()
    with client, server:
        client.sendall(b"all I have to say")
        client.shutdown(socket.SHUT_WR)
        assert _rest(server) == b"all I have to say"
        server.sendall(b"and the answer")
        server.close()
        assert _rest(client) == b"and the answer"


def test_the_end_of_the_server_is_relayed_while_the_client_sends(line: Line) -> None:
    client, server = line.pair()
    with client, server:
        server.shutdown(socket.SHUT_WR)
        assert _rest(client) == b""
        client.sendall(b"still here")
        client.close()
        assert _rest(server) == b"still here"


def test_a_reset_is_a_reset_on_the_other_side(line: Line) -> None:
    for resetting in ("client", "server"):
        client, server = line.pair()
        with client, server:
            one, other = (client, server) if resetting == "client" else (server, client)
            _reset(one)
            with pytest.raises(ConnectionResetError):
                other.recv(1)


def test_bytes_sent_before_a_reset_are_delivered(line: Line) -> None:
    client, server = line.pair()
    with client, server:
        client.sendall(b"?")
        server.recv(1)
        server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of i")
        _reset(server)
        heard = bytearray()
        with pytest.raises(ConnectionResetError):
            _hear(client, heard)
        assert heard.endswith(b"half of i")


def test_a_connection_to_a_closed_port_is_reset(line: Line) -> None:
    line.server.close()
    with socket.socket() as caller, pytest.raises(ConnectionResetError):
        _call(caller, line)


def test_a_side_that_does_not_read_slows_the_other_side_down(line: Line) -> None:
    client, server = line.pair()
    with client, server:
        server.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 1024 * MAX_UNSENT:  # the kernel holds some of it as well, but not all
                sent += _sent_at_last(server, b"x" * 65536)
        assert sent < 1024 * MAX_UNSENT
        client.shutdown(socket.SHUT_WR)
        server.close()
        assert len(_rest(client)) == sent


def test_two_hundred_connections_are_relayed_at_once(line: Line) -> None:
    clients = [line.connect() for _ in range(200)]
    servers = [line.accept() for _ in range(200)]
    with contextlib.ExitStack() as closing:
        for one in (*clients, *servers):
            closing.enter_context(one)
        for number, client in enumerate(clients):
            client.sendall(b"%d" % number)
        for server in servers:
            server.sendall(b"to " + server.recv(10))
        assert [client.recv(10) for client in clients] == [b"to %d" % n for n in range(200)]


def test_connections_are_released_when_they_end(line: Line) -> None:
    for _ in range(20):
        client, server = line.pair()
        client.close()
        assert _rest(server) == b""
        server.close()
    client, server = line.pair()  # all before it have been seen to
    with client, server:
        client.sendall(b"x")
        server.recv(1)
        assert line.open_connections() == 1


def test_without_descriptors_a_new_connection_is_closed_and_the_others_continue(line: Line) -> None:
    client, server = line.pair()
    kept, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket() for _ in range(2)]
    with client, server, contextlib.ExitStack() as closing:
        used = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, most))
        try:
            with contextlib.suppress(OSError):
                while True:  # all that are left
                    closing.callback(os.close, os.dup(client.fileno()))
            for caller in waiting:
                with pytest.raises(ConnectionResetError):
                    _call(caller, line)
            client.sendall(b"still")
            assert server.recv(10) == b"still"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (kept, most))
            for caller in waiting:
                caller.close()


def test_a_datagram_is_answered_to_its_sender(line: Line) -> None:
    with contextlib.ExitStack() as closing:
        server, inside, one, two = (
            closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(4)
        )
        for each in (server, inside, one, two):
            each.bind(ANYWHERE)
            each.settimeout(PATIENCE)
        line.relay.udp(inside, server.getsockname())
        for asking, question in ((one, b"one"), (two, b"two")):
            asking.sendto(question, inside.getsockname())
        for _ in range(2):
            question, caller = server.recvfrom(100)
            server.sendto(b"answer to " + question, caller)
        assert one.recv(100) == b"answer to one"
        assert two.recv(100) == b"answer to two"


def _rest(connection: socket.socket) -> bytes:
    heard = bytearray()
    _hear(connection, heard)
    return bytes(heard)


def _hear(connection: socket.socket, heard: bytearray) -> None:
    connection.settimeout(PATIENCE)
    while output := connection.recv(65536):
        heard += output


def _call(caller: socket.socket, line: Line) -> None:
    """A reset may be here before the connection is known to be made."""
    caller.settimeout(PATIENCE)
    caller.connect(line.listener.getsockname())
    caller.recv(1)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def _sent_at_last(connection: socket.socket, data: bytes) -> int:
    """As much as it takes; when it takes nothing for a while it is full."""
    connection.settimeout(0.3)
    try:
        return connection.send(data)
    except TimeoutError:
        raise BlockingIOError(errno.EAGAIN, "full") from None

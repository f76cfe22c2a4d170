"""The blocking client of the control API, at sockets that answer as a service does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.schema import core as s

CLOCK = b'{"now":"2030-01-01T00:00:00Z","virtual":true,"speed":1.0}'
TIMEOUT = 0.05  # seconds that the client waits for most answers
SLOW = 0.3  # seconds after which this service answers


@pytest.fixture
def slow_service() -> Iterator[str]:
    """It answers every request with the time, after a while."""
    closed = threading.Event()

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                closed.wait(SLOW)
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CLOCK)
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    connection.sendall(head + CLOCK)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        closed.set()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_clock_is_advanced_however_long_that_takes(slow_service: str) -> None:
    client = ControlClient(slow_service)
    client.timeout = TIMEOUT
    assert client.advance(s.AdvanceRequest(by=600.0)).virtual
    with pytest.raises(Unreachable, match="timed out"):
        client.clock()  # as always

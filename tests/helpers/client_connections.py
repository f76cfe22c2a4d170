"""Both kinds of line in one shape, and a server that says exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from forewarn.client.async_connection import AsyncConnection
from forewarn.client.connection import Connection
from forewarn.client.steps import Location, Request, Response
from helpers.waiting import LIMIT


class AnyLine(Protocol):
    def send(self, ask: Request) -> Response: ...

    def close(self) -> None: ...


class Looping:
    """An AsyncLine for whoever blocks."""

    def __init__(self) -> None:
        self.line = AsyncConnection()
        self._runner = asyncio.Runner()

    def send(self, ask: Request) -> Response:
        return self._runner.run(self.line.send(ask))

    def close(self) -> None:
        self.line.close()
        self._runner.close()


LINES: dict[str, Callable[[], AnyLine]] = {"blocking": Connection, "looping": Looping}


def read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65_536)
        if not piece:
            break
        head += piece
    return head


class Raw:
    """For each connection, in this order, one of these is let loose on it; the last for all that
    come after."""

    def __init__(self, *plays: Callable[[socket.socket], None]) -> None:
        self._plays = list(plays)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.location = Location("127.0.0.1", self._listener.getsockname()[1])
        self.heads: list[bytes] = []
        self.connections = 0
        self._open: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Raw:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for line in (self._listener, self._open):
            if line is not None:
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open = connection
            play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
            with connection, contextlib.suppress(OSError):
                connection.settimeout(10)
                play(connection)

    def says(self, *answers: bytes) -> Callable[[socket.socket], None]:
        """One to each request, and then it hangs up."""

        def play(connection: socket.socket) -> None:
            for output in answers:
                if not (head := read_head(connection)):
                    return
                self.heads.append(head)
                connection.sendall(output)

        return play

    def hangs(self, output: bytes = b"") -> Callable[[socket.socket], None]:
        """So much, and then nothing."""

        def play(connection: socket.socket) -> None:
            self.heads.append(read_head(connection))
            connection.sendall(output)
            connection.settimeout(None)
            connection.recv(1)  # until the other side gives up

        return play


@contextlib.contextmanager
def raw(*answers: bytes) -> Iterator[Raw]:
    """The same answers on every connection."""
    server = Raw(lambda connection: server.says(*answers)(connection))
    with server:
        yield server

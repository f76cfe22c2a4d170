"""Raw connections, one to each of two nodes, on which the same is said, and what comes back.

Callers and nodes share one loop: a line is looked at, never waited for. When the loop has turned
a few times and nothing has come, nothing will.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

from forewarn.support import guard

TURNS = 12  # of the loop, between two looks at a line
LOOKS = 2  # in a row that find nothing: then it is quiet
LEISURE = 0.01  # seconds between two looks, when a difference is looked into
PATIENCE = 1.0  # seconds for a line to close after the last word

REQUEST_ID = re.compile(
    rb"(?<=\r\nx-ms-request-id: )"
    rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?=\r\n)"
)


@dataclass(frozen=True)
class Received:
    """What came back: after each segment, and after nothing more was said."""

    response: tuple[bytes, ...]
    closed: bool  # it hung up before that
    ended: bool  # it hung up at all

    @property
    def whole(self) -> bytes:
        return b"".join(self.response)


class Line:
    """One raw connection. It is looked at, never waited for."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.closed = False
        self.response: list[bytes] = []

    def send(self, data: bytes) -> None:
        if not self.closed:
            try:
                self.socket.sendall(data)
            except ConnectionError:
                self.closed = True

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def look(self) -> bool:
        """Has anything come?"""
        if self.closed:
            return False
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        self.closed = not data
        self.response[-1] += data
        return True


class Lines:
    """A line to each node, on which the same is said."""

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self.lines = [Line(connection) for connection in connections]
        self._closed = [False for _ in connections]

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for line in self.lines:
            line.socket.close()

    def send(self, data: bytes) -> None:
        for line in self.lines:
            line.send(data)

    def finish(self) -> None:
        """Nothing more is said, but an answer is still welcome."""
        self._closed = [line.closed for line in self.lines]
        for line in self.lines:
            line.finish()

    async def over(self) -> None:
        """Until both have hung up; they have no reason not to, so seldom is this waited for."""
        patience = int(PATIENCE / LEISURE)
        while patience and not all(line.closed for line in self.lines):
            await guard.pause(LEISURE)
            patience -= not sum(line.look() for line in self.lines)

    def received(self) -> tuple[Received, Received]:
        front, plain = (
            Received(tuple(line.response), closed, line.closed)
            for line, closed in zip(self.lines, self._closed, strict=True)
        )
        return front, plain

    def agree(self) -> list[bytes]:
        """Both have received the same so far, which is returned, and are still connected or not."""
        front, plain = map(same, self.received())
        assert front == plain, "\n".join(["front:", *shown(front), "plain:", *shown(plain)])
        return [*front.response, *([b"closed"] if front.ended else [])]


async def settle(lines: Iterable[Lines], *, leisurely: bool = False) -> None:
    """Until nothing comes any more; what came is one entry of what was said."""
    open_lines = [line for both in lines for line in both.lines]
    for line in open_lines:
        line.response.append(b"")
    quiet = 0
    while quiet < LOOKS:
        if leisurely:
            await guard.pause(LEISURE)
        else:
            for _ in range(TURNS):
                await guard.pause(0)
        quiet = 0 if sum(line.look() for line in open_lines) else quiet + 1


def connected(place: str, port: int, source: str | None, room: int) -> socket.socket:
    """A connection from this address, if it matters; with so much room for what is not read."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if source:
        made.bind((source, 0))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # so that nothing waits
    if room:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    made.connect((place, port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def same(received: Received) -> Received:
    """As it is, but for the ids of the requests."""
    return Received(
        tuple(REQUEST_ID.sub(b"fresh", part) for part in received.response),
        received.closed,
        received.ended,
    )


def shown(received: Received) -> list[str]:
    lines = []
    for at, part in enumerate(same(received).response):
        text = repr(part)[2:-1].replace("\\r\\n", "\\r\\n\n      ")
        lines.append(f"  {at}: {text}")
    how = (
        "hung up by itself"
        if received.closed
        else "hung up"
        if received.ended
        else "DID NOT hang up"
    )
    return [*lines, f"  and {how}"]

"""What stands on every answer, also on one to a request that could not be read: the date in
service time, the server's name, an id of its own. And answers as bytes, in uvicorn's spelling.
"""

from __future__ import annotations

import uuid
from http import HTTPStatus

from forewarn import __version__
from forewarn.metadata import present
from forewarn.metadata.upstream import Upstream
from forewarn.wire.errors import JSON, Problem

SERVER = f"IMDS/{__version__}"
_IDS = 1 << 48  # the part of a request id that counts


class Standing:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._second = -1
        self._date = ""
        self._lines = b""
        # Fresh per answer is enough, unguessable is not asked for: a random part that is this
        # process's own, and a count.
        made = uuid.uuid4()
        self._own = str(made)[:-12]
        self._count = made.int % _IDS

    def headers(self) -> list[tuple[str, str]]:
        self._look(self._upstream.now().at)
        return [
            ("Date", self._date),
            ("Server", SERVER),
            ("x-ms-request-id", f"{self._own}{self.count():012x}"),
        ]

    def lines(self, at: int) -> bytes:
        """The same as bytes for any answer at this instant, up to where `count` goes on."""
        self._look(at)
        return self._lines

    def count(self) -> int:
        self._count = count = (self._count + 1) % _IDS
        return count

    def refusal(self, problem: Problem) -> bytes:
        """A whole answer after which the connection is closed."""
        status = HTTPStatus(problem.status)
        head = [
            *self.headers(),
            ("Content-Type", JSON),
            ("Content-Length", str(len(problem.body))),
            ("Connection", "close"),
        ]
        lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in head)
        return f"HTTP/1.1 {status} {status.phrase}\r\n{lines}\r\n".encode() + problem.body

    def _look(self, at: int) -> None:
        second = at // 1_000_000
        if second != self._second:
            self._second, self._date = second, present.date(at)
            self._lines = (
                f"date: {self._date}\r\nserver: {SERVER}\r\nx-ms-request-id: {self._own}".encode()
            )

"""What stands on every answer, also on one to a request that could not be read: the date in
service time, the server's name, an id of its own. And answers as bytes, in uvicorn's spelling.

An id must be fresh, not unguessable: a random part that is this process's own, and a count. The
last digits of the count come from a table, since making them is a good part of a poll's cost.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from http import HTTPStatus

from forewarn import __version__
from forewarn.metadata.endpoint import to_wire
from forewarn.wire.errors import JSON, Problem

SERVER = f"IMDS/{__version__}"
_LAST_DIGITS = tuple(b"%03x" % n for n in range(0x1000))
_FIRST_DIGITS = 0x1_000_000_000  # so many before they start over


class ResponseHeaders:
    def __init__(self) -> None:
        made = uuid.uuid4()
        self._own = str(made)[:-12]
        self._first = made.int % _FIRST_DIGITS
        self.last_digits: Iterator[bytes] = iter(_LAST_DIGITS)
        self._second = -1
        self._date = ""
        self.lines = b""  # of every answer in this second, but for its id's last digits

    def look(self, at: int) -> None:
        """It is this instant now."""
        second = at // 1_000_000
        if second != self._second:
            self._second, self._date = second, to_wire.date(at)
            self._write()

    def start_over(self) -> bytes:
        """There are no more last digits: other first ones, in `lines` too, and the first last."""
        self._first = (self._first + 1) % _FIRST_DIGITS
        self.last_digits = iter(_LAST_DIGITS)
        self._write()
        return next(self.last_digits)

    def headers(self, at: int) -> list[tuple[str, str]]:
        self.look(at)
        last = (next(self.last_digits, b"") or self.start_over()).decode()
        return [
            ("Date", self._date),
            ("Server", SERVER),
            ("x-ms-request-id", f"{self._own}{self._first:09x}{last}"),
        ]

    def refusal(self, problem: Problem, at: int) -> bytes:
        """A whole answer after which the connection is closed."""
        status = HTTPStatus(problem.status)
        head = [
            *self.headers(at),
            ("Content-Type", JSON),
            ("Content-Length", str(len(problem.body))),
            ("Connection", "close"),
        ]
        lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in head)
        return f"HTTP/1.1 {status} {status.phrase}\r\n{lines}\r\n".encode() + problem.body

    def _write(self) -> None:
        self.lines = (
            f"date: {self._date}\r\nserver: {SERVER}\r\n"
            f"x-ms-request-id: {self._own}{self._first:09x}"
        ).encode()

"""The headers of every answer, even to a request that could not be parsed: the date in service
time, the server's name, and a request id.

A request id must be unique, not unguessable: it is a random prefix of this process and a counter.
The last digits of the counter come from a table, since formatting them is a good part of a poll's
cost.
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
_FIRST_DIGITS = 0x1_000_000_000  # values of the first digits of the counter


class ResponseHeaders:
    def __init__(self) -> None:
        id = uuid.uuid4()
        self._prefix = str(id)[:-12]
        self._first = id.int % _FIRST_DIGITS
        self.last_digits: Iterator[bytes] = iter(_LAST_DIGITS)
        self._second = -1
        self._date = ""
        self.lines = b""  # of every answer in this second, up to the last digits of its id

    def refresh(self, at: int) -> None:
        """Renew the cached header lines when the second has changed."""
        second = at // 1_000_000
        if second != self._second:
            self._second, self._date = second, to_wire.date(at)
            self._write()

    def renew(self) -> bytes:
        """Start a new block of ids, when the last digits are used up. Returns the first of them."""
        self._first = (self._first + 1) % _FIRST_DIGITS
        self.last_digits = iter(_LAST_DIGITS)
        self._write()
        return next(self.last_digits)

    def headers(self, at: int) -> list[tuple[str, str]]:
        self.refresh(at)
        last = (next(self.last_digits, b"") or self.renew()).decode()
        return [
            ("Date", self._date),
            ("Server", SERVER),
            ("x-ms-request-id", f"{self._prefix}{self._first:09x}{last}"),
        ]

    def refusal(self, problem: Problem, at: int) -> bytes:
        """Return a whole answer, after which the connection is closed."""
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
            f"x-ms-request-id: {self._prefix}{self._first:09x}"
        ).encode()

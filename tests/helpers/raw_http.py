"""HTTP by hand: exact bytes out, and every byte of the answer back.

Knows nothing of the service. A client library would mend what it is handed, send headers nobody
asked for and hide the spelling of an answer; here a test says and sees all of it.
"""

from __future__ import annotations

import json
import select
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from helpers.waiting import LIMIT

Place: TypeAlias = tuple[str, int]  # address and port
CLOSING = 60.0  # seconds; less than an idle connection is kept, or one that stays open would pass


@dataclass(frozen=True)
class RawResponse:
    """One answer. `lines` are the header lines as they came, without their ends."""

    line: str
    lines: tuple[str, ...]
    body: bytes
    interim: tuple[str, ...] = ()  # status lines of 1xx answers that came before

    @property
    def status(self) -> int:
        return int(self.line.split(" ")[1])

    def all(self, name: str) -> list[str]:
        """Every value of a header."""
        pairs = [line.split(": ", 1) for line in self.lines]
        return [value for key, value in pairs if key.lower() == name.lower()]

    def header(self, name: str) -> str:
        """The value of a header that stands exactly once."""
        (value,) = self.all(name)
        return value

    @property
    def names(self) -> list[str]:
        return [line.split(":")[0].lower() for line in self.lines]

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class NoAnswer(AssertionError):
    """The server neither answers nor hangs up."""


class ConnectionClosed(AssertionError):
    """The server closed the connection where an answer was due."""


class RawConnection:
    """One connection. What was read beyond an answer is kept for the next."""

    def __init__(self, place: Place, *, source: str | None = None) -> None:
        self._socket = socket.create_connection(
            place, timeout=LIMIT, source_address=(source, 0) if source else None
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kept = b""

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_in_bytes(self, data: bytes) -> None:
        """Every byte in a write of its own."""
        for at in range(len(data)):
            self._socket.sendall(data[at : at + 1])

    def finish(self) -> None:
        """Nothing more will be sent, but an answer is still welcome."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self, *, to_head: bool = False) -> RawResponse:
        """The next final answer, whole. An answer to HEAD has a length but no body."""
        interim: list[str] = []
        while 100 <= (raw := self.head()).status < 200:
            interim.append(raw.line)
        return RawResponse(raw.line, raw.lines, b"" if to_head else self.body(raw), tuple(interim))

    def head(self) -> RawResponse:
        """The head of the next answer, interim or not."""
        line, *lines = self._until(b"\r\n\r\n").decode("latin-1")[:-4].split("\r\n")
        return RawResponse(line, tuple(lines), b"")

    def body(self, head: RawResponse) -> bytes:
        """What goes with such a head."""
        assert head.all("transfer-encoding") == [], "answers are sent with their length"
        return b"" if head.status == 304 else self._exactly(int(head.header("content-length")))

    def over(self) -> bytes:
        """All that is still sent until the server hangs up."""
        self._socket.settimeout(CLOSING)
        while more := self._receive():
            self._kept += more
        kept, self._kept = self._kept, b""
        return kept

    def silent(self) -> bool:
        """Is there nothing to read at this moment?"""
        return not self._kept and not select.select([self._socket], [], [], 0)[0]

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._kept:
            self._more()
        end = self._kept.index(mark) + len(mark)
        found, self._kept = self._kept[:end], self._kept[end:]
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._kept) < size:
            self._more()
        found, self._kept = self._kept[:size], self._kept[size:]
        return found

    def _more(self) -> None:
        data = self._receive()
        if not data:
            raise ConnectionClosed(f"hung up after {self._kept!r}")
        self._kept += data

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65_536)
        except TimeoutError:
            raise NoAnswer(f"silent after {self._kept!r}") from None
        except ConnectionResetError:
            return b""


def exchange(
    place: Place, data: bytes, *, to_head: bool = False, source: str | None = None
) -> RawResponse:
    """One request and its answer, on a connection of its own."""
    with RawConnection(place, source=source) as line:
        line.send(data)
        return line.answer(to_head=to_head)


def request(method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    """A request with exactly these header lines, a Host, and a length if there is a body."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 169.254.169.254", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

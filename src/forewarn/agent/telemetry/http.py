"""The agent's own small HTTP face: /healthz, /readyz, /metrics, /status. GET, no keeping of
connections, and limits so narrow that whoever asks, however and how often, cannot disturb the loop.

HTTP itself is h11's. What is answered is made by `health.py`, `metrics.py` and `status.py`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import h11
import msgspec

from forewarn.agent.config.address import ListenAddress
from forewarn.agent.telemetry.health import AgentHealth, parts
from forewarn.agent.telemetry.metrics import AgentMetrics, Health, exposition
from forewarn.agent.telemetry.status import AgentStatus, status
from forewarn.support import guard

MAX_CONNECTIONS = 16  # at once; more are closed at once
MAX_HEAD = 8 * 1024  # bytes of a request; there is nothing but a head
ASKED_WITHIN = 5.0  # seconds for it
TAKEN_WITHIN = 5.0  # seconds for the answer to be taken
ANSWERS_PER_SECOND = 20.0  # for all callers together; more of them wait
SHARE = 0.05  # of the loop's time that may go into seeing how things stand
SOCKET_MODE = 0o660  # of a UNIX socket

JSON = "application/json"
LIBRARY = "prometheus_client"
REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    status: int
    body: bytes
    type: str = JSON
    more: tuple[tuple[str, str], ...] = ()
    bare: bool = False  # whoever asked wants the head of it alone


class StatusServer:
    """`see` says how things stand; it is called once for each answer that needs it."""

    def __init__(
        self, see: Callable[[], AgentStatus], wellbeing: AgentHealth, counts: AgentMetrics
    ) -> None:
        self._see = see
        self._wellbeing = wellbeing
        self._counts = counts
        self._open = 0
        self._next = 0.0  # when another answer may be given
        self._seen: tuple[float, AgentStatus] | None = None  # until when it is good enough
        self._server: asyncio.Server | None = None
        self._tasks = guard.Tasks()
        self._ways: Mapping[str, Callable[[str], Awaitable[Answer]]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/status": self._status,
        }

    async def listen(self, where: ListenAddress) -> None:
        """Raises OSError."""
        if where.path and not hasattr(asyncio, "start_unix_server"):
            raise OSError(errno.EAFNOSUPPORT, "this system has no such sockets")
        if where.path:
            _not_taken(where.path)
            self._server = await asyncio.start_unix_server(self._came, where.path, limit=MAX_HEAD)
            _let_the_group_ask(where.path)
        else:
            self._server = await asyncio.start_server(
                self._came, where.host, where.port, limit=MAX_HEAD
            )

    @property
    def where(self) -> ListenAddress:
        """Where it listens, also if the port was to be any."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return ListenAddress(host=host, port=port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.end()

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._open += 1
        self._tasks.start(self._served(reader, writer), "a question about the agent's health")

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        try:
            async with asyncio.timeout(ASKED_WITHIN):
                answer = await self._answered(http, reader)
            async with asyncio.timeout(TAKEN_WITHIN):
                writer.write(_bytes(http, answer))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, h11.ProtocolError):
            pass
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _answered(self, http: h11.Connection, reader: asyncio.StreamReader) -> Answer:
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await reader.read(MAX_HEAD))
        except h11.RemoteProtocolError as error:
            return _refused(error.error_status_hint, "this is no request that can be read")
        if not isinstance(event, h11.Request):
            raise ConnectionResetError(errno.ECONNRESET, "nothing was asked")
        await self._turn()
        path = event.target.decode("ascii", "replace").partition("?")[0]
        way = self._ways.get(path)
        if way is None:
            none = _refused(404, f"there is nothing here; there are {', '.join(self._ways)}")
            return none._replace(bare=event.method == b"HEAD")
        if event.method not in (b"GET", b"HEAD"):
            return _refused(405, "only GET", ("Allow", "GET, HEAD"))
        accept = dict(event.headers).get(b"accept", b"").decode("latin-1")
        try:
            return (await way(accept))._replace(bare=event.method == b"HEAD")
        except Exception as error:  # whatever it is, it is ours, and the loop goes on
            return _refused(500, f"{type(error).__name__}: {error}")

    async def _turn(self) -> None:
        """However many ask, the loop has time for what it is there for."""
        now = guard.monotonic()
        self._next = max(now, self._next) + 1 / ANSWERS_PER_SECOND
        if (early := self._next - 1 / ANSWERS_PER_SECOND - now) > 0:
            await guard.pause(early)

    def _now(self) -> AgentStatus:
        """How things stand. One that took long to see is shown for longer."""
        begun = guard.monotonic()
        if self._seen is None or begun >= self._seen[0]:
            picture = self._see()
            took = guard.monotonic() - begun
            self._seen = begun + took / SHARE, picture
        return self._seen[1]

    async def _healthz(self, _accept: str) -> Answer:
        return _wellness(self._wellbeing.healthy())

    async def _readyz(self, _accept: str) -> Answer:
        return _wellness(self._wellbeing.ready(self._now()))

    async def _status(self, _accept: str) -> Answer:
        return Answer(200, msgspec.json.encode(status(self._now())))

    async def _metrics(self, accept: str) -> Answer:
        if (
            LIBRARY not in sys.modules
        ):  # reading it takes a moment, which the loop need not wait for
            await asyncio.get_running_loop().run_in_executor(None, import_module, LIBRARY)
        picture = self._now()
        ready = self._wellbeing.ready(picture)
        health = Health(
            healthy=not self._wellbeing.ailing(),
            ready=not any(ready.values()),
            writable=not ready["state"],
        )
        return Answer(200, *exposition(self._counts, picture, health, accept))


def _wellness(said: dict[str, str]) -> Answer:
    failing = any(said.values())
    word = {"status": "failing" if failing else "ok", "parts": parts(said)}
    return Answer(503 if failing else 200, msgspec.json.encode(word))


def _refused(status: int, says: str, *more: tuple[str, str]) -> Answer:
    return Answer(status, msgspec.json.encode({"error": says}), JSON, more)


def _bytes(http: h11.Connection, answer: Answer) -> bytes:
    headers = [
        ("Content-Type", answer.type),
        ("Content-Length", str(len(answer.body))),
        ("Connection", "close"),
        *answer.more,
    ]
    sent: list[Any] = [
        http.send(
            h11.Response(
                status_code=answer.status, headers=headers, reason=REASONS.get(answer.status, "")
            )
        ),
        http.send(h11.Data(data=b"" if answer.bare else answer.body)),
        http.send(h11.EndOfMessage()),
    ]
    return b"".join(piece for piece in sent if piece)


def _not_taken(path: str) -> None:
    """Whoever listens there would not be asked any more. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.setblocking(False)
        if tried.connect_ex(path) in (0, errno.EAGAIN):  # it answers, or has too much to do
            raise OSError(errno.EADDRINUSE, "another agent listens there")


def _let_the_group_ask(path: str) -> None:
    Path(path).chmod(SOCKET_MODE)

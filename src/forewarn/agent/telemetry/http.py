"""The agent's small HTTP server: /healthz, /readyz, /metrics, /status.

GET only, one request per connection, and strict limits, so that no caller can disturb the agent's
loop. HTTP itself is h11's; the content comes from `health.py`,
`metrics.py` and `status.py`.
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
from forewarn.agent.telemetry.health import AgentHealth
from forewarn.agent.telemetry.metrics import AgentMetrics, Health, exposition
from forewarn.agent.telemetry.status import AgentStatus, status_view
from forewarn.support import guard

MAX_CONNECTIONS = 16  # at once; more are closed immediately
MAX_HEAD = 8 * 1024  # bytes of a request; there is nothing but a head
REQUEST_WITHIN = 5.0  # seconds to receive the request
RESPONSE_WITHIN = 5.0  # seconds to send the response
RESPONSES_PER_SECOND = 20.0  # for all callers together; further requests wait
SHARE = 0.05  # of the loop's time that may be spent on taking the status
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


class Response(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    head_only: bool = False


class StatusServer:
    """`take_status` is called at most once for each response that needs the status."""

    def __init__(
        self, take_status: Callable[[], AgentStatus], health: AgentHealth, metrics: AgentMetrics
    ) -> None:
        self._take_status = take_status
        self._health = health
        self._metrics = metrics
        self._connections = 0
        self._next_response = 0.0  # when another response may be sent
        self._cached: tuple[float, AgentStatus] | None = None  # until when, and the status
        self._server: asyncio.Server | None = None
        self._tasks = guard.Tasks()
        self._routes: Mapping[str, Callable[[str], Awaitable[Response]]] = {
            "/healthz": self._get_healthz,
            "/readyz": self._get_readyz,
            "/metrics": self._get_metrics,
            "/status": self._get_status,
        }

    async def listen(self, address: ListenAddress) -> None:
        """Raises OSError."""
        if address.path and not hasattr(asyncio, "start_unix_server"):
            raise OSError(errno.EAFNOSUPPORT, "this system has no UNIX sockets")
        if address.path:
            _check_not_in_use(address.path)
            self._server = await asyncio.start_unix_server(
                self._accept, address.path, limit=MAX_HEAD
            )
            _allow_group(address.path)
        else:
            self._server = await asyncio.start_server(
                self._accept, address.host, address.port, limit=MAX_HEAD
            )

    @property
    def address(self) -> ListenAddress:
        """The address it listens on, with the port that the system chose if it was 0."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return ListenAddress(host=host, port=port)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.end()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections += 1
        self._tasks.start(self._serve(reader, writer), "a request for the agent's health")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        try:
            async with asyncio.timeout(REQUEST_WITHIN):
                request = await self._receive(http, reader)
            response = await self._respond(request)
            async with asyncio.timeout(RESPONSE_WITHIN):
                writer.write(_encode(http, response))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, h11.ProtocolError):
            pass
        finally:
            self._connections -= 1
            writer.transport.abort()

    async def _receive(
        self, http: h11.Connection, reader: asyncio.StreamReader
    ) -> h11.Request | Response:
        """Return a request, or the response to what is not one."""
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await reader.read(MAX_HEAD))
        except h11.RemoteProtocolError as error:
            return _error(error.error_status_hint, "the request is not valid HTTP")
        if not isinstance(event, h11.Request):
            raise ConnectionResetError(errno.ECONNRESET, "no request was sent")
        return event

    async def _respond(self, request: h11.Request | Response) -> Response:
        if isinstance(request, Response):
            return request
        await self._wait_for_turn()
        path = request.target.decode("ascii", "replace").partition("?")[0]
        route = self._routes.get(path)
        if route is None:
            response = _error(404, f"unknown path; expected one of {', '.join(self._routes)}")
            return response._replace(head_only=request.method == b"HEAD")
        if request.method not in (b"GET", b"HEAD"):
            return _error(405, "only GET and HEAD are allowed", ("Allow", "GET, HEAD"))
        accept = dict(request.headers).get(b"accept", b"").decode("latin-1")
        try:
            return (await route(accept))._replace(head_only=request.method == b"HEAD")
        except Exception as error:  # a bug of ours must not end the loop
            return _error(500, f"{type(error).__name__}: {error}")

    async def _wait_for_turn(self) -> None:
        """Limit the rate of responses, so that the loop has time for its own work."""
        now = guard.monotonic()
        self._next_response = max(now, self._next_response) + 1 / RESPONSES_PER_SECOND
        if (early := self._next_response - 1 / RESPONSES_PER_SECOND - now) > 0:
            await guard.pause(early)

    def _status(self) -> AgentStatus:
        """Return the current status. One that took long to take is reused for longer."""
        now = guard.monotonic()
        if self._cached is None or now >= self._cached[0]:
            status = self._take_status()
            took = guard.monotonic() - now
            self._cached = now + took / SHARE, status
        return self._cached[1]

    async def _get_healthz(self, _accept: str) -> Response:
        return _health_response(self._health.health_problems())

    async def _get_readyz(self, _accept: str) -> Response:
        return _health_response(self._health.readiness_problems(self._status()))

    async def _get_status(self, _accept: str) -> Response:
        return Response(200, msgspec.json.encode(status_view(self._status())))

    async def _get_metrics(self, accept: str) -> Response:
        if LIBRARY not in sys.modules:  # the import takes a moment and would block the loop
            await asyncio.get_running_loop().run_in_executor(None, import_module, LIBRARY)
        status = self._status()
        problems = self._health.readiness_problems(status)
        health = Health(
            healthy=not self._health.first_problem(),
            ready=not any(problems.values()),
            writable=not problems["state"],
        )
        return Response(200, *exposition(self._metrics, status, health, accept))


def _health_response(problems: dict[str, str]) -> Response:
    failing = any(problems.values())
    parts = {part: problem or "ok" for part, problem in problems.items()}
    body = {"status": "failing" if failing else "ok", "parts": parts}
    return Response(503 if failing else 200, msgspec.json.encode(body))


def _error(status: int, message: str, *headers: tuple[str, str]) -> Response:
    return Response(status, msgspec.json.encode({"error": message}), JSON, headers)


def _encode(http: h11.Connection, response: Response) -> bytes:
    headers = [
        ("Content-Type", response.content_type),
        ("Content-Length", str(len(response.body))),
        ("Connection", "close"),
        *response.headers,
    ]
    pieces: list[Any] = [
        http.send(
            h11.Response(
                status_code=response.status,
                headers=headers,
                reason=REASONS.get(response.status, ""),
            )
        ),
        http.send(h11.Data(data=b"" if response.head_only else response.body)),
        http.send(h11.EndOfMessage()),
    ]
    return b"".join(piece for piece in pieces if piece)


def _allow_group(path: str) -> None:
    Path(path).chmod(SOCKET_MODE)


def _check_not_in_use(path: str) -> None:
    """Raise OSError if another process listens there: it would no longer be reached."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        if probe.connect_ex(path) in (0, errno.EAGAIN):  # it answers, or is too busy to
            raise OSError(errno.EADDRINUSE, "another agent listens there")

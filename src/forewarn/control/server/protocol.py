"""The protocol of a connection to the control API: uvicorn's, with limits on what a caller can use
up before it is authenticated. Authenticated requests have no time limit.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn.control.http.problems import BY_NAME, problem_of
from forewarn.control.http.responses import ENDLESS
from forewarn.control.server.connections import OperatorConnection

MAX_OPERATOR_HEAD = 64 * 1024  # bytes of a request before its body
MAX_OPERATOR_LINES = 128  # header lines of a request: each takes time
OPERATOR_HEAD_TIMEOUT = 10.0  # seconds to send them
UNREAD_TIMEOUT = 10.0  # seconds to send the rest of a body after the response

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
    b"x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
)
_FULL_BODY = (
    b'{"type":"/docs#problem-unavailable","title":"Service unavailable","status":503,'
    b'"detail":"too many connections; try again later"}'
)
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n"
    b"retry-after: 10\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_FULL_BODY), _FULL_BODY)


class OperatorsProtocol(HttpToolsProtocol):
    counted: OperatorConnection | None = None  # set by the acceptor
    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes of the current request's head
    _in_head = True
    _unread = False  # whether the body is incomplete
    _half_closed = False  # whether the caller has shut down its side of the connection

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer(OPERATOR_HEAD_TIMEOUT)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not valid HTTP with a problem, like any other bad request."""
        body = msgspec.json.encode(problem_of(BY_NAME["invalid"], msg))
        self.transport.write(_BAD_REQUEST % (len(body), body))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.counted is not None:
            self.counted.closed()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open until the response is sent if the caller has shut down its side.
        Endless streams are closed, and so are TLS connections, of which asyncio cannot keep one
        side open."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or self.scheme == "https":
            return False
        if cycle.scope.get("state", {}).get(ENDLESS):
            return False
        self._half_closed = not cycle.more_body
        if cycle.more_body and self.pipeline:
            self.pipeline.popleft()  # the last request, which will never be complete
            self._half_closed = True
        return self._half_closed

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > MAX_OPERATOR_HEAD:
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head, self._unread = True, 0, True
        self._start_timer(OPERATOR_HEAD_TIMEOUT)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_OPERATOR_LINES:
            raise ValueError("too many header lines")  # llhttp ends the request

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        if self.counted is not None:
            self.counted.busy()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._unread = False
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._unread:
            self._start_timer(UNREAD_TIMEOUT)
        if self.counted is not None and not self.pipeline:
            self.counted.idle()
        last = self._half_closed and not self.pipeline
        super().on_response_complete()
        if last:
            self.transport.close()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

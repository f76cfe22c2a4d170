"""Operators' connections: uvicorn's protocol, with limits on what a caller without a token can use
up. Authenticated callers may take their time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn.control.http.problems import BY_NAME, described
from forewarn.control.http.responses import ENDLESS
from forewarn.control.server.connections import OperatorConnection

MAX_OPERATOR_HEAD = 64 * 1024  # bytes of a request before its body
OPERATOR_HEAD_TIMEOUT = 10.0  # seconds to send them
UNREAD_TIMEOUT = 10.0  # seconds to send the rest of a body that nobody reads any more

_BAD = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\n"
    b"x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
)
_SAYS = (
    b'{"type":"/docs#problem-unavailable","title":"Service unavailable","status":503,'
    b'"detail":"too many connections; come back later"}'
)
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n"
    b"retry-after: 10\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
) % (len(_SAYS), _SAYS)


class OperatorsProtocol(HttpToolsProtocol):
    counted: OperatorConnection | None = None
    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes of the one that is being sent
    _in_head = True
    _unread = False  # is there more to come of the body?
    _half_closed = False  # has the caller shut down its side of the connection?

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._within(OPERATOR_HEAD_TIMEOUT)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with a problem, like any other bad request."""
        body = msgspec.json.encode(described(BY_NAME["invalid"], msg))
        self.transport.write(_BAD % (len(body), body))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        if self.counted is not None:
            self.counted.over()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a caller that has shut down its own side until it has its answer.
        Streams without an end are closed, and so are connections under TLS, where asyncio cannot
        keep one side open alone."""
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
        self._within(OPERATOR_HEAD_TIMEOUT)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_time()
        if self.counted is not None:
            self.counted.busy()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._unread = False
        self._in_time()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._unread:
            self._within(UNREAD_TIMEOUT)
        if self.counted is not None and not self.pipeline:
            self.counted.idle()
        last = self._half_closed and not self.pipeline
        super().on_response_complete()
        if last:
            self.transport.close()

    def _within(self, seconds: float) -> None:
        self._in_time()
        self._timer = self.loop.call_later(seconds, self._too_late)

    def _in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        if not self.transport.is_closing():
            self.transport.abort()

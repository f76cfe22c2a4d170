"""One request and its answer, between a connection and an ASGI application.

The answer is written with the headers that the application gave. A connection never has more than
one exchange under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

from forewarn.metadata.endpoint.fair_queue import timed
from forewarn.metadata.endpoint.reply import CUT, GONE, HALF_CLOSED, Scope
from forewarn.metadata.http.request_parser import Request
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.wire.errors import NOT_CARRIED_OUT, Problem

REQUEST_COST = 200  # microseconds: as many as most requests take
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}

log = logger("forewarn")
_failed = LogThrottle()


class Connection(Protocol):
    """What an exchange needs from its connection."""

    def proceed(self) -> None: ...

    def charge(self, cost: int) -> None: ...

    def has_whole_body(self) -> bool: ...

    def take_body(self) -> tuple[bytes, bool]: ...

    def can_discard_body(self) -> bool: ...

    def refusal(self, problem: Problem) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def answered(self, exchange: Exchange) -> None: ...

    def fail(self, answer: bytes) -> None: ...

    def cut(self, hard: bool) -> None: ...


class Exchange:
    """`REQUEST_COST` has been charged for it; what it takes beyond that is charged afterwards."""

    def __init__(self, connection: Connection, request: Request, scope: Scope) -> None:
        self._connection = connection
        self._request = request
        self.scope = scope
        self.keep_alive = request.keep_alive
        self.disconnected = False  # the caller is gone, or must not be answered
        self.complete = False  # the answer has been written whole
        self.wants_body = False  # the application has asked for it
        self.body_read = 0  # bytes of the body that the application has been given
        self._left = REQUEST_COST
        self._expects_continue = request.expects_continue
        self._body_delivered = False  # the application has been given the end of the body
        self._started = False
        self._head = b""  # of the answer, until the first part of its body
        self._message_ready = asyncio.Event()  # set when `receive` may have a message
        scope[CUT] = connection.cut

    def wake(self) -> None:
        """Wake `receive`: there is more of the body, the caller is gone, or the body is late."""
        self._message_ready.set()

    def half_close(self) -> None:
        self.scope[HALF_CLOSED] = True
        self.wake()

    def disconnect(self) -> None:
        self.disconnected = True
        self.scope[GONE] = True
        self.wake()

    async def run(self, app: Any) -> None:
        try:
            await timed(app(self.scope, self.receive, self.send), self._charge)
        except BaseException as error:
            self._fail(error)
        else:
            if not self.complete and not self.disconnected:
                self._fail(RuntimeError("the application returned without a complete answer"))

    def _charge(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            self._connection.charge(-self._left)
            self._left = 0

    def _fail(self, error: BaseException) -> None:
        if times := _failed.record():
            log.error("a guest's request could not be answered", times=times, exc_info=error)
        if self.disconnected or self.complete:
            return
        self.disconnected = True
        self._connection.fail(b"" if self._started else self._connection.refusal(NOT_CARRIED_OUT))

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the whole body at once, or what there is of it if it is too large or too late."""
        if not self.disconnected and not self.complete:
            if self._expects_continue:
                self._expects_continue = False
                self._connection.write(CONTINUE)
            self.wants_body = True
            if self._body_delivered or not self._connection.has_whole_body():
                self._connection.proceed()
                await self._message_ready.wait()
            self._message_ready.clear()
        if self.disconnected or self.complete:
            return {"type": "http.disconnect"}
        body, more = self._connection.take_body()
        self.body_read += len(body)
        self._body_delivered = not more
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._started = True
            self._expects_continue = False
            self._head = self._head_of(message["status"], message["headers"])
            return
        body = b"" if self._request.method == "HEAD" else message.get("body", b"")
        data, self._head = self._head + body, b""
        self.complete = not message.get("more_body", False)
        self._connection.write(data)
        if self.complete:
            self._connection.answered(self)

    def _head_of(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        closes = False
        for name, value in headers:
            closes |= name.lower() == b"connection" and value.lower() == b"close"
            lines += (name.lower(), b": ", value, b"\r\n")
        if closes or not self._connection.can_discard_body():
            self.keep_alive = False
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

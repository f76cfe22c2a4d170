"""A guest's connection on the slow path: taken over from Front, or accepted by the server.

One request at a time is parsed and answered before the next one is parsed. Bytes that were read
beyond it, one read at most, stay unparsed, and the rest waits in the kernel. All parsing is
scheduled by the fair queue. Slow callers are found by a sweep once a second instead of a timer for
each request. A connection that we close is closed slowly: what the caller still sends is read and
discarded for a while, because closing at once would reset the connection and the caller might never
see its answer.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from forewarn.metadata.endpoint.app import READ_SIZE, MetadataApp
from forewarn.metadata.endpoint.limits import ConnectionAdmission, share_of
from forewarn.metadata.endpoint.reply import HALF_CLOSED, Scope
from forewarn.metadata.http.exchange import REQUEST_COST, Exchange
from forewarn.metadata.http.request_parser import Malformed, Request, RequestParser
from forewarn.support import guard
from forewarn.wire.errors import BUSY, MALFORMED, TOO_MANY_CONNECTIONS, Problem

LINGER = 1.5  # seconds that an idle connection is kept when another process takes over the socket
DISCARD_SECONDS = 3.0  # for which a connection that is being closed is still read
DISCARD_BYTES = 1024 * 1024  # that are read from it and discarded
RESET_AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: close with a reset
REFUSALS = {
    ConnectionAdmission.MACHINE_FULL: TOO_MANY_CONNECTIONS,
    ConnectionAdmission.ALL_FULL: BUSY,
}

STEP_COST = 10  # microseconds that it takes to read the input of one turn of a connection


class MetadataProtocol(asyncio.BufferedProtocol):
    """Created by uvicorn for a connection of its own, or by Front, which then calls `adopt`."""

    endpoint: MetadataApp
    # When the server stops, is an idle connection kept for a last request?
    lingers: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        del app_state
        if not config.loaded:
            config.load()
        self._app = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._server_state = server_state
        self._connections: set[Any] = server_state.connections
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self._client: tuple[str, int] = ("", 0)
        self._server: tuple[str, int] = ("", 0)
        self.caller = ""  # the caller, once the connection is counted
        self._refused = ""  # the caller, if the connection was refused and is counted as such
        self._share = ""  # the caller whose share of time and memory it uses
        self._parser = RequestParser()
        self._input = b""  # what has been read and not been parsed
        self._starved = False  # more input is needed to go on
        self._exchange: Exchange | None = None  # the request that is being answered
        self._queued = False  # is in the fair queue
        self._waits_for_buffer = False  # its machine has reached a limit of buffered bytes
        self._buffered = 0  # bytes that it holds, as accounted
        self._eof = False  # the caller will send no more
        self._write_paused = False  # an answer has not been taken
        self._unwritten_since: float | None = None  # when an answer was first seen to be waiting
        self._waiting_since = 0.0  # when a head was first owed, or its first byte came; or a body
        self._closing_since: float | None = None  # when closing began; input is discarded
        self._discarded = 0  # bytes that were read since then
        self._owed = b""  # not yet written by Front
        self._last = False  # after that nothing more is answered
        self._begun = False  # reading can be paused
        self._stopping = False  # the server stops: the next answer is the last
        self._last_request = False  # the next request is the last one
        self._server_stops: Callable[[], bool] | None = None

    # The connection.

    def adopt(
        self, caller: str, first: bytes, owed: bytes, *, last: bool, closing: Callable[[], bool]
    ) -> None:
        """Take over a connection from Front. Called before `connection_made`."""
        self.caller, self._input, self._owed = caller, first, owed
        self._last, self._server_stops = last, closing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._connections.add(self)
        self._client = _address(transport, "peername")
        server = _address(transport, "sockname")
        self._server = (self.endpoint.callers.target(server), server[1])
        self._waiting_since = guard.monotonic()
        # Whatever the system does not take at once stops the connection until it is taken.
        transport.set_write_buffer_limits(high=0)
        if not self.caller and not self._enter():
            return
        self._share = share_of(self.caller)
        if self._owed:
            self.write(self._owed)
            self._owed = b""
        if self._last:
            self._close()
        elif self._server_stops and self._server_stops():
            self.shutdown()
        # Before Python 3.11.3, asyncio begins to read after this call even if reading was paused
        # in it, and then takes no other pause.
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._begun = True
        self.proceed()

    def abandoned(self) -> None:
        """Clean up if the caller had gone before there was a transport."""
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._connections.discard(self)
        self._input = b""
        if self._exchange is not None:
            self._exchange.disconnect()
        self._account(0)
        if self._waits_for_buffer:
            self.endpoint.buffered.cancel_wait(self._share, self._buffer_available)
        self._leave()

    def _enter(self) -> bool:
        source, target = self._client[0], self._server[0]
        callers, connections = self.endpoint.callers, self.endpoint.connections
        caller = callers.owner(callers.address(source, target), source)
        admission = connections.admission(caller)
        if admission is ConnectionAdmission.ADMITTED:
            self.caller = caller
            connections.enter(caller)
            return True
        self.endpoint.counts.hit(admission.value, caller)
        self._share = share_of(caller)
        self.write(self.refusal(REFUSALS[admission]))
        if connections.refuse(caller):
            self._refused = caller
            self._close()
        else:
            self.transport.close()
        return False

    def _leave(self) -> None:
        if self.caller:
            self.endpoint.connections.leave(self.caller)
        elif self._refused:
            self.endpoint.connections.refused_closed(self._refused)
        self.caller = self._refused = ""

    # Reading.

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self.endpoint.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.pause_reading()
        if self._closing_since is not None:
            self._discarded += nbytes
        else:
            self._input += self.endpoint.read_buffer[:nbytes]
            self._starved = False
            self._account()
        self._queue()

    def eof_received(self) -> bool:
        """The caller sends no more, but may still be waiting for what it is owed."""
        self._eof = True
        if self._closing_since is not None or self.transport.is_closing():
            return False
        if self._exchange is not None and not self._parser.in_body:
            self._exchange.half_close()
        self.proceed()
        return not self.transport.is_closing()

    def _queue(self) -> None:
        if not self._queued:
            self._queued = True
            self.endpoint.queue.add(self._share, self._turn)

    def _turn(self) -> int:
        """Parse a little, when the fair queue calls. Returns the cost of what others do for it."""
        self._queued = False
        if self.transport.is_closing():
            return STEP_COST
        if self._closing_since is not None:
            if self._discarded > DISCARD_BYTES:
                self.transport.abort()
            else:
                self.transport.resume_reading()
            return STEP_COST
        exchange = self._exchange
        if self._may_parse():
            try:
                self._parse()
            except Malformed as error:
                self._malformed(error)
            except Exception:
                self.transport.abort()
                raise
        self.proceed()
        begun = self._exchange is not None and self._exchange is not exchange
        return STEP_COST + REQUEST_COST if begun else STEP_COST

    def _may_parse(self) -> bool:
        """Whether buffered input can be parsed now."""
        if not self._input or self._starved or self._write_paused:
            return False
        if self._exchange is None:
            return True
        return self._exchange.wants_body and self._parser.in_body and not self._too_large()

    def _too_large(self) -> bool:
        return self._parser.body_size > self.endpoint.limits.max_body

    def _parse(self) -> None:
        parser, limits = self._parser, self.endpoint.limits
        had_head, had_body = parser.in_head, parser.in_body
        if not had_head and not had_body:
            self._waiting_since = guard.monotonic()
        consumed = parser.consume(self._input, limits)
        self._input = self._input[consumed:]
        self._starved = not consumed
        if had_body:
            self._body_progressed()
        elif not parser.in_head:
            assert parser.request is not None
            self._answer(parser.request)

    def _body_progressed(self) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is not None:
            if self._eof and not parser.in_body:
                exchange.half_close()
            elif not parser.in_body or self._too_large():
                exchange.wake()
        elif self._too_large():
            self._count("max_body")
            self._close()
        elif not parser.in_body:
            self._waiting_since = guard.monotonic()

    def proceed(self) -> None:
        """Do what comes next: parse, read, wait for a limit, or close at the end of the input."""
        if not self._begun or self._closing_since is not None or self.transport.is_closing():
            return
        self._account()
        if self._may_parse():
            self.transport.pause_reading()
            self._queue()
        elif self._write_paused or (len(self._input) >= READ_SIZE and not self._starved):
            self.transport.pause_reading()
        elif self._eof or (self._stopping and self._idle()):
            self._end()
        elif self._queued:
            pass
        elif limit := self.endpoint.buffered.full(self._share, self, self._buffered):
            self.transport.pause_reading()
            if not self._waits_for_buffer:
                self._waits_for_buffer = True
                self._count(limit)
                self.endpoint.buffered.wait(self._share, self._buffer_available)
        else:
            self.transport.resume_reading()

    def _idle(self) -> bool:
        """Between two requests: nothing of the next one has come."""
        parser = self._parser
        return self._exchange is None and not parser.in_head and not parser.in_body

    def _buffer_available(self) -> None:
        self._waits_for_buffer = False
        self._queue()

    def _end(self) -> None:
        """All that the caller has sent has been parsed, and no more will come or be answered."""
        if self._exchange is None:
            self.transport.close()
        elif self._parser.in_body and self._exchange.wants_body and not self._too_large():
            self._exchange.disconnect()  # its body will never be complete
            self.transport.close()

    def _malformed(self, error: Malformed) -> None:
        if error.limit:
            self._count(error.limit)
        if self._exchange is not None:
            self._exchange.disconnect()
            self._exchange = None
        elif self._parser.in_body:  # of a request that has been answered
            self._close()
            return
        self.write(self.refusal(MALFORMED))
        self._close()

    def _count(self, limit: str) -> None:
        self.endpoint.counts.hit(limit, self.caller)

    def _account(self, held: int | None = None) -> None:
        """Account for the bytes that are held for this connection."""
        if held is None:
            held = len(self._input) + len(self._parser.body)
            if self._exchange is not None:
                held += self._exchange.body_read
            if self._write_paused:
                held += self.transport.get_write_buffer_size()
        if held != self._buffered:
            by, self._buffered = held - self._buffered, held
            self.endpoint.buffered.change(self._share, by)
            if not held:
                self.endpoint.buffered.finish(self._share, self)

    # Answering: called by the exchange.

    def _answer(self, request: Request) -> None:
        self._waiting_since = guard.monotonic()
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "method": request.method,
            "path": request.path,
            "raw_path": request.raw_path,
            "query_string": request.query,
            "headers": request.headers,
        }
        exchange = self._exchange = Exchange(self, request, scope)
        if self._stopping or self._last_request:
            exchange.keep_alive = False
        if self._eof:
            scope[HALF_CLOSED] = True
        task = self._loop.create_task(exchange.run(self._app))
        tasks = self._server_state.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def charge(self, cost: int) -> None:
        self.endpoint.queue.charge(self._share, cost)

    def has_whole_body(self) -> bool:
        return not self._parser.in_body

    def take_body(self) -> tuple[bytes, bool]:
        """Return what there is of the body, and whether there is more to come."""
        body = bytes(self._parser.body)
        self._parser.body.clear()
        return body, self._parser.in_body

    def can_discard_body(self) -> bool:
        """Whether the rest of a body that nobody reads is short enough to be discarded."""
        remaining = self._parser.body_size + self._parser.length_left
        return remaining <= self.endpoint.limits.max_body

    def refusal(self, problem: Problem) -> bytes:
        return self.endpoint.refusal(problem)

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        self._server_state.total_requests += 1
        if exchange is not self._exchange:
            return
        self._exchange = None
        self._parser.discard_body()
        self._waiting_since = guard.monotonic()
        if not exchange.keep_alive:
            self._close()
        else:
            self.proceed()

    def fail(self, answer: bytes) -> None:
        """Close after a failure of the application, with `answer` if nothing has been sent yet."""
        self._exchange = None
        self.write(answer)
        self._close()

    def cut(self, hard: bool) -> None:
        """Close the connection in the middle of an answer, as an injected fault wants it."""
        if self._exchange is not None:
            self._exchange.disconnected = True
        if hard:
            if (connection := self.transport.get_extra_info("socket")) is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
            self.transport.abort()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Stop reading until the caller has taken its answers."""
        self._write_paused = True
        self.proceed()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._unwritten_since = None
        self._queue()  # a transport of asyncio must not be closed from within this call

    # Closing.

    def _close(self) -> None:
        """Close slowly, so that what was written arrives even if the caller is still sending."""
        if self._closing_since is not None or self.transport.is_closing():
            return
        unread = bool(self._input) or self._parser.in_body or not self.caller
        self._closing_since = guard.monotonic()
        self._input = b""
        self._parser = RequestParser()
        self._account()
        if self._eof or (self._stopping and not unread):
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except OSError:  # the caller has gone already
            self.transport.abort()
        else:
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Close when the server stops. Requests that wait for another document are answered now."""
        self.endpoint.extensions.stop()
        if self._exchange is not None:
            self._stopping = True
            self._exchange.keep_alive = False
        elif self._may_parse() and self._closing_since is None:
            self._stopping = True
        elif self.lingers() and not self._last_request and self._closing_since is None:
            self._last_request, self._waiting_since = True, guard.monotonic()
        else:
            self.transport.close()

    def sweep(self, now: float) -> Iterator[None]:
        """Close the connection if the caller has been too slow. Yields after each check."""
        limits, waited = self.endpoint.limits, now - self._waiting_since
        if self.transport.get_write_buffer_size():
            self._unwritten_since = self._unwritten_since or now
            self._cut_off("answer_timeout", now - self._unwritten_since > limits.answer_timeout)
            yield
            return
        self._unwritten_since = None
        if self.transport.is_closing():
            return
        if self._closing_since is not None:
            if now - self._closing_since > DISCARD_SECONDS:
                self.transport.abort()
        elif self._exchange is not None:
            if self._parser.in_body and waited > limits.body_timeout:
                self._exchange.wake()  # the application checks how late it is
        elif self._parser.in_head:
            self._cut_off("head_timeout", waited > limits.head_timeout)
        elif self._parser.in_body:  # a body that is being discarded
            self._cut_off("body_timeout", waited > limits.body_timeout)
        elif self._last_request and waited > LINGER:
            self.transport.close()
        elif waited > limits.keep_alive:
            self.endpoint.counts.hits["keep_alive"] += 1
            self.transport.close()
        yield

    def _cut_off(self, limit: str, reached: bool) -> None:
        if reached:
            self._count(limit)
            self.transport.abort()


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int]:
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if address else ("", 0)


def protocol(
    app: MetadataApp, *, lingers: Callable[[], bool] = lambda: False
) -> type[MetadataProtocol]:
    """Return the protocol class for this endpoint."""

    class Bound(MetadataProtocol):
        endpoint = app

    class BoundToLease(Bound):
        """Writes nothing without the lease, whatever has to be answered."""

        def write(self, data: bytes) -> None:
            assert app.held is not None
            if app.held():
                super().write(data)
            else:
                self.transport.abort()

    Bound.lingers = staticmethod(lingers)
    return Bound if app.held is None else BoundToLease

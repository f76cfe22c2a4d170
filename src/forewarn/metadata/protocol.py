"""uvicorn's HTTP protocol, made to keep our promises at its edges.

What is not HTTP is answered like everything else, and only after the answers that are owed for
good requests before it. A verb that the parser does not know is a verb all the same. An offer to
upgrade (Java's client makes one with every first request) is passed over, and the body behind it
is read. Whoever says too much or too slowly is cut off; `sweep` is called once a second, so that
no timer is needed for each request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from forewarn.metadata.app import MetadataApp
from forewarn.metadata.limits import Room
from forewarn.service import guard
from forewarn.wire.errors import BUSY, MALFORMED, TOO_MANY_CONNECTIONS, Problem

# A request line whose verb is a token, as HTTP has it, and how much of one may have come so far.
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_ODD_VERB = re.compile(_TOKEN + rb"{1,64}(?= [!-~]+ HTTP/1\.[01]\r\n)")
_PART_OF_A_LINE = re.compile(_TOKEN + rb"{1,64}( [!-~]*( [!-~]*\r?)?)?")
_PROTOCOLS = (b" HTTP/1.1", b" HTTP/1.0")
_STAND_IN = b"OPTIONS"  # a verb that the parser knows and the endpoint does not take
END = b"\r\n\r\n"  # of a head, and of a body in chunks
_FRAMING = (b"content-length", b"transfer-encoding")
NO_ROOM = {Room.NONE_FOR_THE_MACHINE: TOO_MANY_CONNECTIONS, Room.NONE_AT_ALL: BUSY}


class MetadataProtocol(HttpToolsProtocol):
    """Made by uvicorn for a connection of its own, or by Front, which then lets it `adopt` one."""

    endpoint: MetadataApp  # set by `protocol`

    _who = ""  # whose connection it is, once it is counted
    _first = b""  # read by Front before there was a transport
    _owed = b""  # not yet written by Front
    _last = False  # after that nothing more is answered
    _closing: Callable[[], bool] | None = None  # is the server stopping?
    _running: RequestResponseCycle | None = None  # the request that is being answered
    _unwritten_since: float | None = None  # when an answer was first seen to be waiting
    _half_closed = False  # the caller will say no more
    _passing_over = False  # the head that is being parsed has been seen already
    _malformed = False  # nothing after this is read
    _in_message = False  # its first byte has come, its last has not
    _fresh = False  # what is fed next is the beginning of a message
    _held = b""  # the beginning of a request line: an odd verb is known by the whole of it
    _tail = b""  # the last bytes of a message so far: its end may be cut in two
    _body_left = 0  # bytes of a body whose length was told
    _beside = 0  # bytes of a head so far, or of what is sent around a body
    _waiting_since = 0.0  # when a head was first owed, or its first byte came; or a body
    _head_begun = False  # some of a head has come, but not all

    # The connection.

    def adopt(
        self, who: str, first: bytes, owed: bytes, *, last: bool, closing: Callable[[], bool]
    ) -> None:
        """Called before `connection_made` by whoever has had the connection until now."""
        self._who, self._first, self._owed = who, first, owed
        self._last, self._closing = last, closing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_since = guard.monotonic()
        if not self._who:
            self._enter()
            return
        if self._owed:
            transport.write(self._owed)
            self._owed = b""
        if self._last:
            transport.close()
        elif self._first:
            first, self._first = self._first, b""
            self.data_received(first)
        if self._closing and self._closing():
            self.shutdown()

    def adopted(self) -> None:
        """The loop reads from a new transport whatever was said before it; say it again."""
        if self.flow.read_paused and not self.transport.is_closing():
            self.transport.pause_reading()

    def abandoned(self) -> None:
        """The caller had gone before there was a transport."""
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        self.pipeline.clear()
        if self._running is not None:  # uvicorn knows only of the last that was sent
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._leave()

    def _enter(self) -> None:
        source, asked = (self.client or ("", 0))[0], (self.server or ("", 0))[0]
        seats = self.endpoint.seats
        who = seats.whose(seats.address(source, asked), source)
        room = self.endpoint.crowd.room(who)
        if room is Room.ENOUGH:
            self._who = who
            self.endpoint.crowd.enter(who)
        else:
            self.endpoint.counts.hit(room.value, who)
            self._give_up(NO_ROOM[room])

    def _leave(self) -> None:
        if self._who:
            self.endpoint.crowd.leave(self._who)
            self._who = ""

    def sweep(self, now: float) -> Iterator[None]:
        """Hang up if the caller has kept us waiting for too long. Yields when it has looked."""
        limits, waited = self.endpoint.limits, now - self._waiting_since
        if self.transport.get_write_buffer_size():
            if self._unwritten_since is None:
                self._unwritten_since = now
            elif now - self._unwritten_since > limits.answer_timeout:
                self._too_much("answer_timeout")
                self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._in_flight():
            if self.cycle.more_body and waited > limits.body_timeout:
                self.cycle.message_event.set()  # the application looks how late it is
        elif self._head_begun:
            self._cut_off("head_timeout", waited > limits.head_timeout)
        elif self._in_message:  # a body that nobody waits for any more
            self._cut_off("body_timeout", waited > limits.body_timeout)
        elif waited > limits.keep_alive:
            self.endpoint.counts.hits["keep_alive"] += 1
            self.transport.close()
        yield

    def _cut_off(self, limit: str, reached: bool) -> None:
        if reached:
            self.endpoint.counts.hit(limit, self._who)
            self.transport.close()

    # Reading. The parser is fed no further than to where a message may end, so that it makes no
    # difference how what was sent is cut into pieces on its way.

    def data_received(self, data: bytes) -> None:
        while data and not self._malformed and not self.transport.is_closing():
            if self._in_message:
                data = self._go_on(data)
            else:
                self._begin_head()
                data = self._begin((self._held + data).lstrip(b"\r\n"))

    def _begin(self, data: bytes) -> bytes:
        """A message begins here. Returns what lies behind it, if it is whole."""
        self._held = self._tail = b""
        self._beside = 0
        line, newline, _ = data.partition(b"\r\n")
        if not newline and _PART_OF_A_LINE.fullmatch(data):
            self._held, self._beside = data, len(data)
            self._check()
            return b""
        if newline and not line.endswith(_PROTOCOLS):
            self.send_400_response("")
            return b""
        self._fresh = True
        return self._go_on(data)

    def _go_on(self, data: bytes) -> bytes:
        at = (self._tail + data).find(END)
        end = len(data) if at < 0 else at + len(END) - len(self._tail)
        piece = data[: self._body_left or end]
        self._beside += len(piece)
        if self._head_begun and not self._check():
            return b""
        self._tail = (self._tail + piece)[1 - len(END) :]
        fresh, self._fresh = self._fresh, False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._pass_over()
        except httptools.HttpParserInvalidMethodError:
            verb = _ODD_VERB.match(piece) if fresh else None
            if verb is None:
                self.send_400_response("")
            else:
                self._new_parser()
                return self._begin(_STAND_IN + data[verb.end() :])
        except httptools.HttpParserError:
            self.send_400_response("")
        if self._in_message and not self._malformed:  # chunks and trailers have no end either
            self._check()
        return data[len(piece) :]

    def _check(self) -> bool:
        if self._beside <= self.endpoint.limits.max_head:
            return True
        self._too_much("max_head")
        self.send_400_response("")
        return False

    def _pass_over(self) -> None:
        """The parser gave up at the offer, behind the head; a new one goes on from there."""
        framing = [b": ".join(h) for h in self.headers if h[0] in _FRAMING]
        self._passing_over = True
        self._new_parser()
        self.parser.feed_data(b"\r\n".join([_STAND_IN + b" / HTTP/1.1", *framing, b"", b""]))

    def _begin_head(self) -> None:
        if not self._head_begun:
            self._head_begun, self._waiting_since = True, guard.monotonic()

    def _new_parser(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        self._in_message = True
        if not self._passing_over:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._passing_over:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_begun and not self._passing_over:  # behind the body it would be a trailer
            super().on_header(name, value)
            if len(self.headers) > self.endpoint.limits.max_head_lines:
                self._stop("max_head_lines")

    def on_headers_complete(self) -> None:
        self._head_begun, self._beside = False, 0
        self._waiting_since = guard.monotonic()
        self._body_left = next((int(v) for n, v in self.headers if n == b"content-length"), 0)
        limits = self.endpoint.limits
        if self._passing_over:
            self._passing_over = False
            return
        if self.parser.get_http_version() == "1.0":
            self.expect_100_continue = False
        if len(self.pipeline) >= limits.max_pipelined:
            self._stop("max_pipelined")
        super().on_headers_complete()

    def _stop(self, limit: str) -> None:
        self._too_much(limit)
        raise ValueError("more than is allowed")  # the parser stops: malformed

    def _too_much(self, limit: str) -> None:
        self.endpoint.counts.hit(limit, self._who)

    def on_chunk_complete(self) -> None:
        self._beside = 0

    def on_body(self, body: bytes) -> None:
        self._beside -= len(body)
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        # At an offer to upgrade the parser ends the message before its body.
        if not self.parser.should_upgrade():
            self._in_message = False
            super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The caller says no more, but may still be listening for what it is owed."""
        if self._in_flight() and self.cycle.more_body and self.pipeline:
            self.pipeline.popleft()  # the last one, which will never be whole
            self._half_closed = True
        else:
            self._half_closed = self._in_flight() and not self.cycle.more_body
        return self._half_closed

    # Answering.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Whoever does not take its answers is not asked for more."""
        super().pause_writing()
        self.flow.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwritten_since = None
        if not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """As uvicorn's, but the sweep looks after idle connections, and no timer."""
        self.server_state.total_requests += 1
        self._waiting_since = guard.monotonic()
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._malformed:
            self._give_up(MALFORMED)
        elif self._half_closed:
            self.transport.close()
        elif not self.flow.write_paused:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._malformed = True
        if self._in_flight() and self.cycle.more_body:  # its own body is what is malformed
            if self.pipeline and self.pipeline[0][0] is self.cycle:
                self.pipeline.popleft()
            else:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                self._give_up(MALFORMED)
        elif not self._in_flight():
            self._give_up(MALFORMED)

    def _in_flight(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _give_up(self, problem: Problem) -> None:
        if not self.transport.is_closing():
            self.transport.write(self.endpoint.refusal(problem))
            self.transport.close()


def protocol(app: MetadataApp) -> type[MetadataProtocol]:
    """The protocol's class for this endpoint."""

    class Bound(MetadataProtocol):
        endpoint = app

    return Bound

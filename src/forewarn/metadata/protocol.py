"""uvicorn's HTTP protocol for a connection of ours: taken over from Front or accepted, counted,
looked after by a sweep once a second instead of a timer for each request, and read no faster than
its answers are taken.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from forewarn import guard
from forewarn.metadata.app import MetadataApp
from forewarn.metadata.limits import Room
from forewarn.metadata.reading import ReadingProtocol
from forewarn.metadata.reply import CUT, HALF_CLOSED
from forewarn.wire.errors import BUSY, MALFORMED, TOO_MANY_CONNECTIONS

LINGER = 1.5  # seconds that an idle connection is kept when somebody else goes on with the socket
RESET_AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: nothing is waited for, nor said
NO_ROOM = {Room.NONE_FOR_THE_MACHINE: TOO_MANY_CONNECTIONS, Room.NONE_AT_ALL: BUSY}


class MetadataProtocol(ReadingProtocol):
    """Made by uvicorn for a connection of its own, or by Front, which then lets it `adopt` one."""

    _first = b""  # read by Front before there was a transport
    _owed = b""  # not yet written by Front
    _last = False  # after that nothing more is answered
    _closing: Callable[[], bool] | None = None  # is the server stopping?
    _running: RequestResponseCycle | None = None  # the request that is being answered
    _unwritten_since: float | None = None  # when an answer was first seen to be waiting
    _half_closed = False  # the caller will say no more
    # When the server stops, is an idle connection kept for a last request?
    lingers: Callable[[], bool] = staticmethod(lambda: False)
    _last_words = False  # whatever is asked now is the last

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

    def shutdown(self) -> None:
        """The server stops: whoever waits for news is told so now, not when its time is up."""
        self.endpoint.beside.stop()
        idle = not self._in_flight()
        if self.lingers() and idle and not self._last_words and not self.transport.is_closing():
            self._last_words, self._waiting_since = True, guard.monotonic()
        else:
            super().shutdown()

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
            self._unwritten_since = self._unwritten_since or now
            self._cut_off("answer_timeout", now - self._unwritten_since > limits.answer_timeout)
            yield
            return
        self._unwritten_since = None
        if self.transport.is_closing():
            return
        if self._in_flight():
            if self.cycle.more_body and waited > limits.body_timeout:
                self.cycle.message_event.set()  # the application looks how late it is
        elif self._head_begun:
            self._cut_off("head_timeout", waited > limits.head_timeout)
        elif self._in_message:  # a body that nobody waits for any more
            self._cut_off("body_timeout", waited > limits.body_timeout)
        elif self._last_words and waited > LINGER:
            self.transport.close()
        elif waited > limits.keep_alive:
            self.endpoint.counts.hits["keep_alive"] += 1
            self.transport.close()
        yield

    def _cut_off(self, limit: str, reached: bool) -> None:
        if reached:
            self._too_much(limit)
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The caller says no more, but may still be listening for what it is owed."""
        if self._in_flight() and self.cycle.more_body and self.pipeline:
            self.pipeline.popleft()  # the last one, which will never be whole
            self._half_closed = True
        else:
            self._half_closed = self._in_flight() and not self.cycle.more_body
        if self._half_closed and self._running is not None:  # or may have gone: let it not wait
            self._running.scope[HALF_CLOSED] = True  # type: ignore[literal-required]
            self._running.message_event.set()
        return self._half_closed

    # Answering.

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if self._last_words:
            cycle.keep_alive = False
        if self._half_closed:
            cycle.scope[HALF_CLOSED] = True  # type: ignore[literal-required]
        cycle.scope[CUT] = self.cut  # type: ignore[literal-required]
        super()._start_asgi_task(cycle, app)

    def cut(self, hard: bool) -> None:
        """Hang up on the request that is being answered, because somebody wants it so."""
        if self._running is not None:
            self._running.disconnected = True  # so that uvicorn misses no answer
        if hard:
            if (connection := self.transport.get_extra_info("socket")) is not None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
            self.transport.abort()
        else:
            self.transport.close()

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
        elif self._half_closed or self._deaf:
            self.transport.close()
        elif not self.flow.write_paused:
            self.flow.resume_reading()


def protocol(
    app: MetadataApp, *, lingers: Callable[[], bool] = lambda: False
) -> type[MetadataProtocol]:
    """The protocol's class for this endpoint."""

    class Bound(MetadataProtocol):
        endpoint = app

    Bound.lingers = staticmethod(lingers)
    return Bound

"""A connection to the endpoint that is kept from one request to the next; blocking.

Plain sockets: no proxy is ever asked, for link-local addresses or any other. A connection that the
other side has closed meanwhile is opened once more before anybody hears of it.
"""

from __future__ import annotations

import contextlib
import socket

import h11

from forewarn import guard
from forewarn.client.exchange import READ_AT_ONCE, Exchange
from forewarn.client.steps import LEAST, STALL, Answer, Ask, Place


class Line:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._place: Place | None = None
        self._http: h11.Connection | None = None
        self._interrupted = False

    def ask(self, ask: Ask) -> Answer:
        if self._place != ask.place:
            self.close()
        asked = guard.monotonic()
        kept = self._socket is not None
        answer = self._asked(ask, asked)
        stale = kept and answer.trouble == "reset" and not self._interrupted
        return self._asked(ask, asked) if stale else answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._http = self._place = None

    def interrupt(self) -> None:
        """From another thread: whoever waits for an answer gets none."""
        self._interrupted = True
        if (line := self._socket) is not None:
            with contextlib.suppress(OSError):  # it is gone already
                line.shutdown(socket.SHUT_RDWR)

    def _asked(self, ask: Ask, asked: float) -> Answer:
        if self._socket is None:
            try:
                where = ask.place.host, ask.place.port
                self._socket = socket.create_connection(where, max(LEAST, ask.connect))
            except ConnectionRefusedError:
                return Answer(trouble="refused", asked=asked, answered=guard.monotonic())
            except (OSError, UnicodeError):  # nobody there, no way there, no such name
                return Answer(trouble="unreachable", asked=asked, answered=guard.monotonic())
            self._place = ask.place
        exchange = Exchange(ask, self._http)
        self._http = None
        source = _exchanged(self._socket, exchange, ask.answer)
        answer = exchange.answer(asked, guard.monotonic(), source)
        self._http = exchange.next_on_it()
        if self._http is None:
            self.close()
        return answer


def _exchanged(line: socket.socket, exchange: Exchange, within: float) -> str:
    """From which address of ours."""
    source = ""
    deadline = guard.monotonic() + within
    try:
        source = str(line.getsockname()[0])
        line.settimeout(max(LEAST, within))
        line.sendall(exchange.request)
        while not exchange.feed(line.recv(READ_AT_ONCE)):
            deadline = min(deadline, guard.monotonic() + STALL)
            line.settimeout(max(LEAST, deadline - guard.monotonic()))
    except TimeoutError:
        exchange.failed(late=True)
    except OSError:
        exchange.failed(late=False)
    return source

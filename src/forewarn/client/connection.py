"""A connection to the endpoint that is kept from one request to the next; blocking.

Plain sockets: no proxy is ever asked, for link-local addresses or any other. A connection that the
other side has closed meanwhile is opened once more before anybody hears of it.
"""

from __future__ import annotations

import contextlib
import socket

import h11

from forewarn.client import pace
from forewarn.client.exchange import READ_AT_ONCE, Exchange
from forewarn.client.steps import Answer, Ask, Location
from forewarn.support import guard


class Connection:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._place: Location | None = None
        self._http: h11.Connection | None = None
        self._interrupted = False

    def ask(self, ask: Ask) -> Answer:
        """Whatever happens is an answer; only being interrupted is not."""
        if self._place != ask.place or (self._socket is not None and not is_quiet(self._socket)):
            self.close()
        asked = guard.monotonic()
        kept = self._socket is not None
        try:
            answer = self._asked(ask, asked)
            stale = kept and answer.trouble == "reset" and not self._interrupted
            return self._asked(ask, asked) if stale else answer
        except BaseException:  # Ctrl-C in the middle: what is still to come belongs to nobody
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._http = self._place = None

    def interrupt(self) -> None:
        """From another thread, and for good: whoever waits for an answer gets none."""
        self._interrupted = True
        if (line := self._socket) is not None:
            with contextlib.suppress(OSError):  # it is gone already
                line.shutdown(socket.SHUT_RDWR)

    def _asked(self, ask: Ask, asked: float) -> Answer:
        if self._socket is None:
            try:
                where = ask.place.host, ask.place.port
                self._socket = socket.create_connection(where, max(pace.LEAST, ask.connect))
            except ConnectionRefusedError:
                return Answer(trouble="refused", asked=asked, answered=guard.monotonic())
            except (OSError, UnicodeError):  # nobody there, no way there, no such name
                return Answer(trouble="unreachable", asked=asked, answered=guard.monotonic())
            self._place = ask.place
        if self._interrupted:  # while there was no socket yet that could have been shut down
            self.close()
            return Answer(trouble="reset", asked=asked, answered=guard.monotonic())
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
        line.settimeout(max(pace.LEAST, within))
        line.sendall(exchange.request)
        line.settimeout(max(pace.LEAST, deadline - guard.monotonic()))
        while not exchange.feed(line.recv(READ_AT_ONCE)):
            now = guard.monotonic()
            if now >= deadline:  # which a socket that always has something more never is
                raise TimeoutError
            deadline = min(deadline, now + pace.STALL)
            line.settimeout(max(pace.LEAST, deadline - now))
    except TimeoutError:
        exchange.failed(late=True)
    except OSError:
        exchange.failed(late=False)
    return source


def is_quiet(line: socket.socket) -> bool:
    """May a kept connection be asked again? If there is something to read on it before that, the
    other side has closed it, or talks out of turn."""
    line.setblocking(False)
    try:
        line.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

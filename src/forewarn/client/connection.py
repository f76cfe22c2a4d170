"""A blocking connection to the endpoint that is kept from one request to the next.

Plain sockets: no proxy is ever used, for link-local addresses or any other. A kept connection that
the server has closed meanwhile is opened once more before a request fails.
"""

from __future__ import annotations

import contextlib
import socket

import h11

from forewarn.client import pace
from forewarn.client.exchange import READ_AT_ONCE, Exchange
from forewarn.client.steps import Location, Request, Response
from forewarn.support import guard


class Connection:
    """A connection that is opened by the first request, and again when it is lost."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._location: Location | None = None
        self._http: h11.Connection | None = None
        self._interrupted = False

    def send(self, request: Request) -> Response:
        """Send a request. Returns a response also if it fails."""
        if self._location != request.location or (self._socket and not is_idle(self._socket)):
            self.close()
        sent_at = guard.monotonic()
        reused = self._socket is not None
        try:
            response = self._exchange(request, sent_at)
            stale = reused and response.failure == "reset" and not self._interrupted
            return self._exchange(request, sent_at) if stale else response
        except BaseException:  # Ctrl-C: the rest of the answer must not be read as the next one
            self.close()
            raise

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._http = self._location = None

    def interrupt(self) -> None:
        """End a request from another thread. The connection cannot be used afterwards."""
        self._interrupted = True
        if (open_socket := self._socket) is not None:
            with contextlib.suppress(OSError):  # it is gone already
                open_socket.shutdown(socket.SHUT_RDWR)

    def _exchange(self, request: Request, sent_at: float) -> Response:
        if self._socket is None:
            try:
                address = request.location.host, request.location.port
                timeout = max(pace.LEAST, request.connect_timeout)
                self._socket = socket.create_connection(address, timeout)
            except ConnectionRefusedError:
                return failed("refused", sent_at)
            except (OSError, UnicodeError):  # no route, no such name, no connection in time
                return failed("unreachable", sent_at)
            self._location = request.location
        if self._interrupted:  # while there was no socket yet that could have been shut down
            self.close()
            return failed("reset", sent_at)
        exchange = Exchange(request, self._http)
        self._http = None
        source = _transfer(self._socket, exchange, request.timeout)
        response = exchange.response(sent_at, guard.monotonic(), source)
        self._http = exchange.reusable_connection()
        if self._http is None:
            self.close()
        return response


def failed(failure: str, sent_at: float) -> Response:
    """Return the outcome of a request that was not answered."""
    return Response(failure=failure, sent_at=sent_at, received_at=guard.monotonic())


def _transfer(connected: socket.socket, exchange: Exchange, timeout: float) -> str:
    """Send the request and receive the answer. Returns our own address."""
    source = ""
    deadline = guard.monotonic() + timeout
    try:
        source = str(connected.getsockname()[0])
        connected.settimeout(max(pace.LEAST, timeout))
        connected.sendall(exchange.request)
        connected.settimeout(max(pace.LEAST, deadline - guard.monotonic()))
        while not exchange.feed(connected.recv(READ_AT_ONCE)):
            now = guard.monotonic()
            if now >= deadline:  # a socket that always has more to read never times out
                raise TimeoutError
            deadline = min(deadline, now + pace.STALL)
            connected.settimeout(max(pace.LEAST, deadline - now))
    except TimeoutError:
        exchange.fail(late=True)
    except OSError:
        exchange.fail(late=False)
    return source


def is_idle(connected: socket.socket) -> bool:
    """Whether a kept connection can be used again. If there is something to read before a request
    is sent, the server has closed it, or sent data that was not requested."""
    connected.setblocking(False)
    try:
        connected.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

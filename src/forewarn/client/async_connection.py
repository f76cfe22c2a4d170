"""An asynchronous connection to the endpoint that is kept from one request to the next.

The same as `connection.py` in every other respect.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from typing import Any

import h11

from forewarn.client import pace
from forewarn.client.connection import failed, is_idle
from forewarn.client.exchange import READ_AT_ONCE, Exchange
from forewarn.client.steps import Location, Request, Response
from forewarn.support import guard


class AsyncConnection:
    """A connection that is opened by the first request, and again when it is lost."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._location: Location | None = None
        self._http: h11.Connection | None = None
        self._interrupted = False

    async def send(self, request: Request) -> Response:
        """Send a request and return its response, whatever happens. A request on a connection that
        was closed meanwhile is sent again on a new one."""
        if self._location != request.location or (self._socket and not is_idle(self._socket)):
            self.close()
        sent_at = guard.monotonic()
        reused = self._socket is not None
        try:
            response = await self._exchange(request, sent_at)
            if reused and response.failure == "reset" and not self._interrupted:
                response = await self._exchange(request, sent_at)
        except BaseException:  # cancelled: the rest of the answer must not be read as the next one
            self.close()
            raise
        return response

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self._http = self._location = None

    def interrupt(self) -> None:
        """End a request. The connection cannot be used afterwards."""
        self._interrupted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    async def _exchange(self, request: Request, sent_at: float) -> Response:
        if self._socket is None:
            try:
                timeout = max(pace.LEAST, request.connect_timeout)
                self._socket = await _connect(request.location, timeout)
            except ConnectionRefusedError:
                return failed("refused", sent_at)
            except (OSError, UnicodeError):  # no route, no such name, no connection in time
                return failed("unreachable", sent_at)
            self._location = request.location
        if self._interrupted:
            self.close()
            return failed("reset", sent_at)
        exchange = Exchange(request, self._http)
        self._http = None
        source = await _transfer(self._socket, exchange, request.timeout)
        response = exchange.response(sent_at, guard.monotonic(), source)
        self._http = exchange.reusable_connection()
        if self._http is None:
            self.close()
        return response


async def _connect(location: Location, timeout: float) -> socket.socket:
    """Connect to the first of the host's addresses that accepts; `timeout` is for each of them."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("the host has no address")
    async with asyncio.timeout(timeout):
        addresses = await _addresses(location)
    for family, address in addresses:
        connected = socket.socket(family, socket.SOCK_STREAM)
        connected.setblocking(False)
        try:
            async with asyncio.timeout(timeout):
                await loop.sock_connect(connected, address)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure


async def _addresses(location: Location) -> list[tuple[int, tuple[Any, ...]]]:
    """Return the addresses of a host. An IP address is not looked up, which takes a thread."""
    try:
        version = ipaddress.ip_address(location.host).version
    except ValueError:
        loop = asyncio.get_running_loop()
        entries = await loop.getaddrinfo(location.host, location.port, type=socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in entries]
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    return [(family, (location.host, location.port))]


async def _transfer(connected: socket.socket, exchange: Exchange, timeout: float) -> str:
    """Send the request and receive the answer. Returns our own address."""
    loop = asyncio.get_running_loop()
    source = ""
    try:
        source = str(connected.getsockname()[0])
        async with asyncio.timeout(max(pace.LEAST, timeout)) as limit:
            await loop.sock_sendall(connected, exchange.request)
            while not exchange.feed(await loop.sock_recv(connected, READ_AT_ONCE)):
                limit.reschedule(min(limit.when() or 0.0, loop.time() + pace.STALL))
                await guard.pause(0)  # a socket that always has more must not block other tasks
    except TimeoutError:
        exchange.fail(late=True)
    except OSError:
        exchange.fail(late=False)
    return source

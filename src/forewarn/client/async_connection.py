"""A connection to the endpoint that is kept from one request to the next; for a loop.

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
from forewarn.client.connection import is_quiet
from forewarn.client.exchange import READ_AT_ONCE, Exchange
from forewarn.client.steps import Answer, Ask, Location
from forewarn.support import guard


class AsyncConnection:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._place: Location | None = None
        self._http: h11.Connection | None = None
        self._interrupted = False

    async def ask(self, ask: Ask) -> Answer:
        if self._place != ask.place or (self._socket is not None and not is_quiet(self._socket)):
            self.close()
        asked = guard.monotonic()
        kept = self._socket is not None
        try:
            answer = await self._asked(ask, asked)
            if kept and answer.trouble == "reset" and not self._interrupted:
                answer = await self._asked(ask, asked)
        except BaseException:  # cancelled in the middle: what is still to come belongs to nobody
            self.close()
            raise
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._http = self._place = None

    def interrupt(self) -> None:
        """For good: whoever waits for an answer gets none."""
        self._interrupted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._socket.shutdown(socket.SHUT_RDWR)

    async def _asked(self, ask: Ask, asked: float) -> Answer:
        if self._socket is None:
            try:
                self._socket = await _connected(ask.place, max(pace.LEAST, ask.connect))
            except ConnectionRefusedError:
                return Answer(trouble="refused", asked=asked, answered=guard.monotonic())
            except (OSError, UnicodeError):  # nobody there, no way there, no such name
                return Answer(trouble="unreachable", asked=asked, answered=guard.monotonic())
            self._place = ask.place
        if self._interrupted:
            self.close()
            return Answer(trouble="reset", asked=asked, answered=guard.monotonic())
        exchange = Exchange(ask, self._http)
        self._http = None
        source = await _exchanged(self._socket, exchange, ask.answer)
        answer = exchange.answer(asked, guard.monotonic(), source)
        self._http = exchange.next_on_it()
        if self._http is None:
            self.close()
        return answer


async def _connected(place: Location, within: float) -> socket.socket:
    """To the first of its addresses that takes us; each has so many seconds."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("it has no address")
    async with asyncio.timeout(within):
        addresses = await _addresses(place)
    for family, address in addresses:
        line = socket.socket(family, socket.SOCK_STREAM)
        line.setblocking(False)
        try:
            async with asyncio.timeout(within):
                await loop.sock_connect(line, address)
        except OSError as error:
            line.close()
            failure = error
        except BaseException:
            line.close()
            raise
        else:
            return line
    raise failure


async def _addresses(place: Location) -> list[tuple[int, tuple[Any, ...]]]:
    """What is an address already is not looked up, which takes a thread."""
    try:
        version = ipaddress.ip_address(place.host).version
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        return [(family, at) for family, _, _, _, at in found]
    return [(socket.AF_INET6 if version == 6 else socket.AF_INET, (place.host, place.port))]


async def _exchanged(line: socket.socket, exchange: Exchange, within: float) -> str:
    """From which address of ours."""
    loop = asyncio.get_running_loop()
    source = ""
    try:
        source = str(line.getsockname()[0])
        async with asyncio.timeout(max(pace.LEAST, within)) as limit:
            await loop.sock_sendall(line, exchange.request)
            while not exchange.feed(await loop.sock_recv(line, READ_AT_ONCE)):
                limit.reschedule(min(limit.when() or 0.0, loop.time() + pace.STALL))
                await guard.pause(0)  # where there is always more, nobody else would have a turn
    except TimeoutError:
        exchange.failed(late=True)
    except OSError:
        exchange.failed(late=False)
    return source

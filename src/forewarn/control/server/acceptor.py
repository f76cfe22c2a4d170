"""Accepts operators' connections itself, so that each is counted from its first moment.

What happens on an accepted connection is uvicorn's and `protocol.py`'s; how many are accepted is
decided in `connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from forewarn.control.server.connections import OperatorConnection, OperatorConnections
from forewarn.control.server.protocol import FULL, OperatorsProtocol
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

HANDSHAKE_TIMEOUT = 10.0  # seconds of guard time for a TLS handshake
ACCEPTED_AT_ONCE = 64  # connections before the loop gets its turn
ACCEPT_AGAIN = 1.0  # seconds after which it is tried again when there were no more open files

_SPENT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

log = logger("forewarn.control")


class Acceptor:
    """Stands in uvicorn's list of servers, and is closed with them."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        make: Callable[[], OperatorsProtocol],
        tasks: guard.Tasks,
        connections: OperatorConnections,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._listeners = listeners
        self._make = make
        self._tasks = tasks
        self._connections = connections
        self._tls = tls  # returns the context for a new connection; the certificate may change
        self._loop = asyncio.get_running_loop()
        self._full, self._spent, self._failed = LogThrottle(), LogThrottle(), LogThrottle()
        self._closed = False
        for listener in listeners:
            listener.setblocking(False)
        self._open()

    def close(self) -> None:
        self._closed = True
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())

    async def wait_closed(self) -> None:
        """Those who were let in are the server's own, and it looks after them."""

    def _open(self) -> None:
        if not self._closed:
            for listener in self._listeners:
                self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SPENT:
                    self._exhausted()
                    return
                continue  # it has gone already
            self._admit(sock, address[0])

    def _admit(self, sock: socket.socket, address: str) -> None:
        connection = self._connections.enter(sock, address)
        if connection is not None:
            sock.setblocking(False)
            self._tasks.start(self._serve(sock, connection, address), "an operator's connection")
            return
        if self._tls is None:  # else nobody could read it
            with contextlib.suppress(OSError):
                sock.send(FULL, socket.MSG_DONTWAIT)
        sock.close()
        if times := self._full.record():
            log.warning(
                "too many connections to the control API: some were refused",
                address=address,
                connections=len(self._connections),
                times=times,
            )

    async def _serve(
        self, sock: socket.socket, connection: OperatorConnection, address: str
    ) -> None:
        def made() -> OperatorsProtocol:
            protocol = self._make()
            protocol.counted = connection
            return protocol

        try:
            await self._loop.connect_accepted_socket(
                made,
                sock,
                ssl=self._tls() if self._tls else None,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self._tls else None,
            )
        except (OSError, TimeoutError) as error:  # not TLS, too slow, or closed meanwhile
            connection.over()
            sock.close()
            if self._tls is not None:
                self._tell_of_handshake(address, error)
        except BaseException:
            connection.over()
            sock.close()
            raise

    def _tell_of_handshake(self, address: str, error: OSError) -> None:
        """Log failed handshakes, at most once a minute."""
        if times := self._failed.record():
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            log.info(
                "a TLS handshake with the control API failed",
                address=address,
                why=str(reason or "the caller closed the connection"),
                times=times,
            )

    def _exhausted(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())
        self._loop.call_later(ACCEPT_AGAIN, self._open)
        if times := self._spent.record():
            log.error("no more open files for the control API", times=times)


def acceptors(tasks: guard.Tasks, most: int, tls: Callable[[], ssl.SSLContext] | None) -> Any:
    """Return a factory of acceptors for the listeners and protocols of a server."""
    connections = OperatorConnections(most)
    return lambda listeners, make: Acceptor(listeners, make, tasks, connections, tls)

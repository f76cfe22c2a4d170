"""Accepts connections to the control API, so that each is counted as soon as it is accepted.

Accepted connections are handled by uvicorn and `protocol.py`; how many are accepted is decided in
`connections.py`.
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
ACCEPTED_AT_ONCE = 64  # connections before control returns to the event loop
ACCEPT_AGAIN = 1.0  # seconds of pause after the limit of open files was reached

_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

log = logger("forewarn.control")


class Acceptor:
    """Accepts connections of some listeners; uvicorn closes it like an `asyncio.Server`."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        new_protocol: Callable[[], OperatorsProtocol],
        tasks: guard.Tasks,
        connections: OperatorConnections,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._listeners = listeners
        self._new_protocol = new_protocol
        self._tasks = tasks
        self._connections = connections
        self._tls = tls  # returns the context for a new connection; the certificate may change
        self._loop = asyncio.get_running_loop()
        self._refused_log, self._files_log, self._tls_log = (
            LogThrottle(),
            LogThrottle(),
            LogThrottle(),
        )
        self._closed = False
        self._accepting: list[asyncio.Task[None]] = []  # where the loop cannot watch sockets
        for listener in listeners:
            listener.setblocking(False)
        self._open()

    def close(self) -> None:
        self._closed = True
        self._stop()

    async def wait_closed(self) -> None:
        """Wait until the listeners can be closed, but not for the accepted connections, for which
        uvicorn itself waits."""
        if self._accepting:
            await asyncio.wait(self._accepting)

    def _open(self) -> None:
        if self._closed:
            return
        for listener in self._listeners:
            try:
                self._loop.add_reader(listener.fileno(), self._accept, listener)
            except NotImplementedError:  # Windows
                task = self._tasks.start(self._keep_accepting(listener), "accepting operators")
                self._accepting.append(task)

    def _stop(self) -> None:
        if self._accepting:
            for task in self._accepting:
                task.cancel()
            return
        for listener in self._listeners:
            self._loop.remove_reader(listener.fileno())

    async def _keep_accepting(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, address = await self._loop.sock_accept(listener)
            except OSError as error:
                exhausted = error.errno in _OUT_OF_RESOURCES
                if exhausted:
                    self._log_exhaustion()
                # Otherwise the caller has closed the connection already.
                await guard.pause(ACCEPT_AGAIN if exhausted else 0)
                continue
            self._admit(sock, address[0])

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause()
                    return
                continue  # the caller has closed the connection already
            self._admit(sock, address[0])

    def _admit(self, sock: socket.socket, address: str) -> None:
        connection = self._connections.add(sock, address)
        sock.setblocking(False)
        if connection is not None:
            self._tasks.start(self._serve(sock, connection, address), "an operator's connection")
            return
        if self._tls is None:  # with TLS, the caller could not read it
            with contextlib.suppress(OSError):
                sock.send(FULL)
        sock.close()
        if times := self._refused_log.record():
            log.warning(
                "too many connections to the control API: some were refused",
                address=address,
                connections=len(self._connections),
                times=times,
            )

    async def _serve(
        self, sock: socket.socket, connection: OperatorConnection, address: str
    ) -> None:
        def counted_protocol() -> OperatorsProtocol:
            protocol = self._new_protocol()
            protocol.counted = connection
            return protocol

        try:
            await self._loop.connect_accepted_socket(
                counted_protocol,
                sock,
                ssl=self._tls() if self._tls else None,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if self._tls else None,
            )
        except (OSError, TimeoutError) as error:  # not TLS, too slow, or closed meanwhile
            connection.closed()
            sock.close()
            if self._tls is not None:
                self._log_failed_handshake(address, error)
        except BaseException:
            connection.closed()
            sock.close()
            raise

    def _log_failed_handshake(self, address: str, error: OSError) -> None:
        """Log failed handshakes, at most once a minute."""
        if times := self._tls_log.record():
            reason = getattr(error, "reason", None) or error.strerror or str(error)
            log.info(
                "a TLS handshake with the control API failed",
                address=address,
                why=str(reason or "the caller closed the connection"),
                times=times,
            )

    def _pause(self) -> None:
        """Stop accepting for a moment, since there are no more open files."""
        self._stop()
        self._loop.call_later(ACCEPT_AGAIN, self._open)
        self._log_exhaustion()

    def _log_exhaustion(self) -> None:
        if times := self._files_log.record():
            log.error("no more open files for the control API", times=times)


def acceptors(tasks: guard.Tasks, most: int, tls: Callable[[], ssl.SSLContext] | None) -> Any:
    """Return a factory of acceptors for the listeners and protocols of a server."""
    connections = OperatorConnections(most)
    return lambda listeners, new_protocol: Acceptor(
        listeners, new_protocol, tasks, connections, tls
    )

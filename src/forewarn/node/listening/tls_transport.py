"""A transport for asyncio over a TLS socket that OpenSSL reads and writes by itself.

asyncio puts TLS into memory and copies it from and to a transport of its own: buffers and objects
that are there for as long as a connection lives, and control has a connection for every host.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from typing import Any

# Bytes; TLS has no larger piece, and OpenSSL reads only one from the socket: what it has not
# read makes the socket readable again.
READ_AT_ONCE = 16 * 1024
HIGH_WATER = 64 * 1024  # unsent bytes from which on the protocol is to pause, as in asyncio

_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def accept_tls(connection: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Shake hands with a client, and return the socket to go on with. Raises OSError. The
    connection is closed if that fails."""
    loop = asyncio.get_running_loop()
    try:
        tls = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
    except BaseException:
        connection.close()
        raise
    try:
        while True:
            try:
                tls.do_handshake()
                return tls
            except ssl.SSLWantReadError:
                watch, forget = loop.add_reader, loop.remove_reader
            except ssl.SSLWantWriteError:
                watch, forget = loop.add_writer, loop.remove_writer
            ready = asyncio.Event()
            watch(tls, ready.set)
            try:
                await ready.wait()
            finally:
                forget(tls)
    except BaseException:
        tls.close()
        raise


class TlsTransport(asyncio.Transport):
    """Of a socket whose handshake is over. Calls the protocol as asyncio's transports do."""

    __slots__ = (
        "_closing",
        "_loop",
        "_paused",
        "_protocol",
        "_reads",
        "_socket",
        "_unsent",
        "_writes",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLSocket, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._loop = loop
        self._socket = tls
        self._protocol = protocol
        # What is queued. OpenSSL has to be given the same piece again if it could not be sent.
        self._unsent: deque[bytes] = deque()
        self._closing = False
        self._paused = False  # the protocol, which is to write nothing more
        self._reads = False  # is the socket watched for what arrives?
        self._writes = False  # or for room to write?
        protocol.connection_made(self)
        self.resume_reading()

    # Reading.

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        if not self._reads and not self._closing:
            self._reads = True
            self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        if not self._reads:
            return
        try:
            data = self._socket.read(READ_AT_ONCE)
        except _AGAIN:
            return
        except OSError as error:
            self._end(error)
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._protocol.eof_received()
            self.close()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._unsent.append(bytes(data))
        if not self._writes:
            self._write()
        if not self._paused and self._unsent and self.get_write_buffer_size() > HIGH_WATER:
            self._paused = True
            self._protocol.pause_writing()

    def _write(self) -> None:
        try:
            while self._unsent:
                piece = self._unsent[0]
                sent = self._socket.write(piece)
                if sent < len(piece):
                    self._unsent[0] = piece[sent:]
                else:
                    self._unsent.popleft()
        except _AGAIN:
            if not self._writes:
                self._writes = True
                self._loop.add_writer(self._socket, self._write)
            return
        except OSError as error:
            self._end(error)
            return
        if self._writes:
            self._writes = False
            self._loop.remove_writer(self._socket)
        if self._paused:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing:
            self._end(None)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._unsent))

    def can_write_eof(self) -> bool:
        return False

    # Its end.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close the connection once everything is sent."""
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._unsent:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: OSError | None) -> None:
        if self._socket.fileno() < 0:
            return
        self.pause_reading()
        self._closing = True
        if self._writes:
            self._loop.remove_writer(self._socket)
        self._unsent.clear()
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()  # tells the other side, and does not wait for it
        self._socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._socket.context
        return default

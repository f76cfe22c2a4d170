"""One end of a connection on which messages are sent (`messages`).

Messages are either received one by one, or delivered: a function is called with each as it arrives,
without waking a task. Control has a connection to every host, most of which are idle but for signs
of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from forewarn.metadata.publishing.messages import (
    LENGTH,
    BrokenConnection,
    Misbehaved,
    decoder,
    frame,
)

MAX_FRAME = 64 * 1024 * 1024  # bytes; a group with all the events it may have fits
MAX_UNREAD = 128 * 1024  # bytes that are kept until somebody receives them
# Bytes that are encrypted at once: OpenSSL has a buffer for the most that was ever, for as long as
# a connection lives, and control has very many of them.
WRITE_AT_ONCE = 2_048
CLOSED = "the other process has closed the connection"

T = TypeVar("T")


def at_most(limit: int) -> Callable[[int], None]:
    """Return a function that raises Misbehaved for the length of a message beyond the limit."""

    def admit(length: int) -> None:
        if length > limit:
            raise Misbehaved(f"a message of {length} bytes; {limit} are allowed")

    return admit


_admit = at_most(MAX_FRAME)


class MessageStream(asyncio.Protocol, Generic[T]):
    """The protocol of a transport; T are the messages of the other end."""

    def __init__(self, messages: object) -> None:
        self._decode = cast("Callable[[bytes], T]", decoder(messages))
        self._received = bytearray()
        self._length: int | None = None  # of the message that is arriving, once it is admitted
        self._deliver: Callable[[T], None] | None = None
        self._admit = _admit
        self._over: asyncio.Future[None] | None = None  # once messages are delivered
        self._arrived: asyncio.Event | None = None  # while somebody waits for a message
        self._sendable: asyncio.Event | None = None  # while nothing more is to be sent
        self._reads = True  # is the transport to read?
        self._ended = False
        self.transport: asyncio.Transport

    # What arrives.

    async def receive(self, admit: Callable[[int], None] = _admit) -> T:
        """Return the next message. `admit` is called with its length, and raises Misbehaved if it
        is too long. Raises BrokenConnection."""
        while (data := self._next(admit)) is None:
            self._check()
            self._resume()
            self._arrived = asyncio.Event()
            try:
                await self._arrived.wait()
            finally:
                self._arrived = None
        return self._decode(data)

    async def deliver(self, take: Callable[[T], None], admit: Callable[[int], None]) -> None:
        """Call `take` with each message as soon as it arrives, until the connection is broken.
        Raises BrokenConnection, and what `take` and `admit` raise."""
        self._deliver, self._admit = take, admit
        self._over = asyncio.get_running_loop().create_future()
        self._take_all()
        if self._ended:
            self._end()
        self._resume()
        await self._over

    def _next(self, admit: Callable[[int], None]) -> bytes | None:
        """Return the next message if it has arrived."""
        received = self._received
        if self._length is None:
            if len(received) < LENGTH:
                return None
            length = int.from_bytes(received[:LENGTH], "big")
            admit(length)
            self._length = length
        end = LENGTH + self._length
        if len(received) < end:
            return None
        data = bytes(received[LENGTH:end])
        del received[:end]
        self._length = None
        return data

    def _take_all(self) -> None:
        """Deliver what has arrived."""
        assert self._over is not None
        assert self._deliver is not None
        try:
            while not self._over.done() and (data := self._next(self._admit)) is not None:
                self._deliver(self._decode(data))
        except Exception as error:  # whoever waits for the end is told
            if not self._over.done():
                self._over.set_exception(error)

    def _resume(self) -> None:
        if not self._reads:
            self._reads = True
            self.transport.resume_reading()

    def _check(self) -> None:
        if self._ended:
            raise BrokenConnection(CLOSED)

    # What is sent.

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message. Does nothing if the connection is closed."""
        self.send_frame(frame(message))

    def send_frame(self, framed: bytes) -> None:
        if not self.transport.is_closing():
            for at in range(0, len(framed), WRITE_AT_ONCE):
                self.transport.write(framed[at : at + WRITE_AT_ONCE])

    async def drain(self) -> None:
        """Wait until most of what was sent has left. Raises BrokenConnection."""
        self._check()
        if self._sendable is not None:
            await self._sendable.wait()
            self._check()

    @property
    def unsent(self) -> int:
        """Bytes that were not sent yet."""
        return self.transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self.transport.close()

    def cut(self) -> None:
        self.transport.abort()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._over is not None:
            self._take_all()
        elif self._arrived is not None:
            self._arrived.set()
        elif len(self._received) > MAX_UNREAD:
            self._reads = False
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end()

    def _end(self) -> None:
        self._ended = True
        if self._over is not None and not self._over.done():
            self._over.set_exception(BrokenConnection(CLOSED))
        for waits in (self._arrived, self._sendable):
            if waits is not None:
                waits.set()

    def pause_writing(self) -> None:
        self._sendable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._sendable is not None:
            self._sendable.set()
            self._sendable = None

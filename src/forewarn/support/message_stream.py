"""One end of a connection on which messages are sent, as between control and the nodes on hosts.

A frame is four bytes of length and that much msgpack. A message of a kind that is not known here
has no effect. Messages are either received one by one, or delivered: a function is called with each
as it arrives, without waking a task. Control has a connection to every host, most of which are idle
but for signs of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec

from forewarn.support import guard

LENGTH = 4  # bytes of a frame that say how long its message is
MAX_FRAME = 64 * 1024 * 1024  # bytes; a group with all the events it may have fits
MAX_UNREAD = 128 * 1024  # bytes that are kept until somebody receives them
# Bytes that are encrypted at once: OpenSSL has a buffer for the most that was ever, for as long as
# a connection lives, and control has very many of them.
WRITE_AT_ONCE = 2_048
MAX_RECEIVED = 16 * 1024 * 1024  # bytes of a message of somebody with an allowance, however large
MESSAGE_COST = 64  # bytes that a message counts for beside its length
BURST = 8  # seconds' worth that may be sent at once, after a connection was blocked
CLOSED = "the other process has closed the connection"

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode


class BrokenConnection(Exception):
    """The other side is gone, or sent something invalid; the message says which."""


class Misbehaved(BrokenConnection):
    """The other side sent something that it must not send; the message says what."""


class UnknownMessage(msgspec.Struct, frozen=True, tag="unknown"):
    """What is received instead of a message of another version that is not known here. It has no
    effect, but is a sign of life."""


class _Kind(msgspec.Struct, frozen=True):
    """What every message has, of whatever version."""

    type: str


_read_kind = msgspec.msgpack.Decoder(_Kind).decode


def frame(message: msgspec.Struct) -> bytes:
    data = _encode(message)
    return len(data).to_bytes(LENGTH, "big") + data


@cache
def decoder(messages: object) -> Callable[[bytes], Any]:
    """Return what reads these messages; one for all connections. It raises Misbehaved."""
    kinds = {message.__struct_config__.tag for message in get_args(messages)}
    decode = msgspec.msgpack.Decoder(messages).decode

    def read(data: bytes) -> Any:
        try:
            try:
                return decode(data)
            except msgspec.ValidationError:
                if _read_kind(data).type in kinds:
                    raise
                return UnknownMessage()
        except msgspec.MsgspecError as error:
            raise Misbehaved(f"a message that cannot be read: {error}") from error

    return read


def at_most(limit: int) -> Callable[[int], None]:
    """Return a function that raises Misbehaved for the length of a message beyond the limit."""

    def admit(length: int) -> None:
        if length > limit:
            raise Misbehaved(f"a message of {length} bytes; {limit} are allowed")

    return admit


class Allowance:
    """What the other end may still send: so much in every second, which is looked up again when it
    does not suffice."""

    def __init__(self, rate: int, per_second: Callable[[], int]) -> None:
        self._per_second = per_second
        self.rate = rate  # or more, as it was when it was last exceeded
        self._left = float(BURST * self.rate)
        self._since = guard.monotonic()

    def admit(self, length: int) -> None:
        """Count a message. Raises Misbehaved if it is too long, or one too many."""
        if length > self.rate or length > self._left:
            self._look_again()
        at_most(min(self.rate, MAX_RECEIVED))(length)
        self.spend(length + MESSAGE_COST)

    def spend(self, bytes: int) -> None:
        now = guard.monotonic()
        self._left = min(BURST * self.rate, self._left + self.rate * (now - self._since))
        self._since = now
        if bytes > self._left:
            self._look_again()
        if bytes > self._left:
            raise Misbehaved(f"it sends more than {self.rate} bytes a second")
        self._left -= bytes

    def _look_again(self) -> None:
        before, self.rate = self.rate, self._per_second()
        self._left += BURST * max(0, self.rate - before)


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

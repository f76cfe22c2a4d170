"""What the control process and a metadata worker say to each other: messages, and frames that
carry them over any pair of streams.

A frame is four bytes of length and that much msgpack. The first message each way tells versions;
it is the only one that another version has to understand. Who says what when is `hub` (control's
side) and `remote` (the worker's).
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeAlias, TypeVar

import msgspec

from forewarn.core import Duration, Durations, GroupView, Machine, Time
from forewarn.core.fleet import Place
from forewarn.metadata.upstream import GroupNews, Prepared
from forewarn.service.telemetry.samples import Sample

PROTOCOL = 2
MAX_FRAME = 64 * 1024 * 1024  # bytes; a group with all the events it may have fits
MAX_GREETING = 4_096  # bytes of a first message

_LENGTH = 4
_encode = msgspec.msgpack.Encoder().encode


class BrokenConnection(Exception):
    """The other side is gone, or says what cannot be understood; the message says which."""


# The worker's first word, and control's.


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    version: str  # of forewarn
    worker: int  # which of the workers, counted from 0
    instance: str  # of that worker's process
    serving: bool  # does it answer guests already, from what it was told before?
    service: str = ""  # whose worker it is: there may be several services on a machine


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    protocol: int
    version: str
    rules: Durations


class Unwelcome(msgspec.Struct, frozen=True, tag="unwelcome"):
    says: str


# Control to worker.


class SnapshotPart(msgspec.Struct, frozen=True, tag="slice"):
    """Some of all groups, as they are."""

    groups: tuple[GroupNews, ...]


class SnapshotEnd(msgspec.Struct, frozen=True, tag="whole"):
    """That were all groups; what was not among them is no more."""

    seq: int


class Changed(msgspec.Struct, frozen=True):
    """A group as it will be; what is None stays as it was."""

    view: GroupView
    machines: tuple[Machine, ...] | None = None
    place: Place | None = None


class News(msgspec.Struct, frozen=True, tag="news"):
    """Durable, but not to be shown yet. From now on the old is not to be shown either."""

    seq: int
    groups: tuple[Changed, ...]
    more: bool = False  # is this commit told of in further messages?


class Shown(msgspec.Struct, frozen=True, tag="shown"):
    """Everybody has heard of all up to this commit: it may be shown."""

    seq: int
    at: Time
    lost: Duration
    reset: bool = False  # the time may also go back


class TimeIs(msgspec.Struct, frozen=True, tag="time"):
    """The service's time. Workers do not read the wall clock."""

    at: Time


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """To a call. What the call brought about has been shown before."""

    id: int
    yes: bool = True
    prepared: Prepared | None = None
    failed: str = ""  # why it could not be carried out; then nothing took effect


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """Control is being stopped, and not of something it died of."""


# Worker to control.


class Held(msgspec.Struct, frozen=True, tag="held"):
    """What this commit changes is no longer shown as it was before."""

    seq: int
    whole: bool = False  # in answer to `SnapshotEnd`


class Enable(msgspec.Struct, frozen=True, tag="enable"):
    id: int
    group: str


class Approve(msgspec.Struct, frozen=True, tag="approve"):
    id: int
    machine: str
    group: str
    ids: tuple[str, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    id: int
    machine: str
    group: str
    event: str
    ready: bool
    note: str


class AskPrepared(msgspec.Struct, frozen=True, tag="prepared"):
    id: int
    group: str
    event: str


Call: TypeAlias = Enable | Approve | Prepare | AskPrepared


class Polled(msgspec.Struct, frozen=True, array_like=True):
    """A machine's polls since it was last reported, all of one version and incarnation."""

    machine: str
    group: str
    version: str
    incarnation: int
    events: tuple[str, ...]
    first: Time
    last: Time
    count: int


class Report(msgspec.Struct, frozen=True, tag="report"):
    """What was seen since the last one."""

    polled: tuple[Polled, ...] = ()
    alive: tuple[str, ...] = ()  # groups with a sign of life that was answered with nothing


class Pulse(msgspec.Struct, frozen=True, tag="pulse"):
    """How the worker is doing."""

    shown: int  # the last commit that it shows
    readings: tuple[Sample, ...]  # since its process began


ToWorker: TypeAlias = (
    Welcome | Unwelcome | SnapshotPart | SnapshotEnd | News | Shown | TimeIs | Answer | Goodbye
)
ToControl: TypeAlias = Hello | Held | Enable | Approve | Prepare | AskPrepared | Report | Pulse

T = TypeVar("T")


def frame(message: msgspec.Struct) -> bytes:
    data = _encode(message)
    return len(data).to_bytes(_LENGTH, "big") + data


class MessageStream(Generic[T]):
    """One end of a pair of streams; T is what the other end says."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: object
    ) -> None:
        self._reader, self.writer = reader, writer
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(heard)

    def say(self, message: msgspec.Struct) -> None:
        """Not waited for. To a line that is closed it is as if nobody had listened."""
        self.send(frame(message))

    def send(self, framed: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(framed)

    async def hear(self, most: int = MAX_FRAME) -> T:
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if length > most:
                raise BrokenConnection(f"a message of {length} bytes; {most} are allowed")
            return self._decoder.decode(await self._reader.readexactly(length))
        except (OSError, EOFError) as error:
            raise BrokenConnection("the other side is gone") from error
        except msgspec.MsgspecError as error:
            raise BrokenConnection(f"a message that cannot be read: {error}") from error

    async def drain(self) -> None:
        try:
            await self.writer.drain()
        except OSError as error:
            raise BrokenConnection("the other side is gone") from error

    @property
    def unsent(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self.writer.transport.get_write_buffer_size()

    def cut(self) -> None:
        self.writer.transport.abort()

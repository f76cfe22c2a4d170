"""Many nodes in one process, as far as control can tell: each has a line with a certificate of its
own, confirms what it is told, and says regularly that it is there. Nobody polls them, and they keep
no journal.

python -m bench.cluster.lines CERTIFICATES PORT HOST [HOST …]
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from bench.cluster.hosts import LOOPBACK, Certificates
from bench.platform.meter import stopwatch
from forewarn import __version__
from forewarn.metadata.publishing.messages import (
    NODE_PROTOCOLS,
    Held,
    Hidden,
    Hide,
    Joined,
    News,
    NodeHello,
    Ping,
    SnapshotEnd,
    ToNode,
)
from forewarn.metadata.publishing.node_upstream import PULSE_EVERY
from forewarn.node.listening.tls import ResumingContext
from forewarn.support import guard
from forewarn.support.control_follower import MAX_DIAL_PAUSE, MIN_DIAL_PAUSE
from forewarn.support.message_stream import BrokenConnection, MessageStream

HANDSHAKE = 5.0  # seconds, as in a node
SLICES = 20  # in which the lines send their signs of life, so that they do not do it all at once


class Await(msgspec.Struct, frozen=True):
    """Wait until every line has joined after this time: answered with when the last one did."""

    after: float
    cut: bool = False  # cut all lines first


class Line:
    def __init__(self, host: str, certificates: Certificates, port: int) -> None:
        self._host = host
        self._port = port
        context = ResumingContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certificates.authority)
        pair = certificates.of(host)
        context.load_cert_chain(pair.certificate, pair.key)
        self._context = context
        self._stream: MessageStream[ToNode] | None = None
        self.joined = 0.0  # when it joined last

    async def run(self) -> None:
        pause = MIN_DIAL_PAUSE
        while True:
            try:
                await self._follow()
                pause = MIN_DIAL_PAUSE
            except (BrokenConnection, OSError, TimeoutError):
                pass
            if self._stream is not None:
                pause, self._stream = MIN_DIAL_PAUSE, None
            await guard.pause(pause)
            pause = min(2 * pause, MAX_DIAL_PAUSE)

    async def _follow(self) -> None:
        async with asyncio.timeout(HANDSHAKE):
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: MessageStream[ToNode](ToNode), LOOPBACK, self._port, ssl=self._context
            )
        try:
            stream.send(
                NodeHello(
                    protocols=NODE_PROTOCOLS,
                    version=__version__,
                    host=self._host,
                    instance=self._host,
                    serving=self.joined > 0,
                )
            )
            await stream.receive()
            self._stream = stream
            stream.send(Ping(stopwatch()))
            while True:
                match await stream.receive():
                    case News(publications=publications, more=False):
                        stream.send(Held(publications[-1].number))
                    case Hide(numbers=numbers):
                        stream.send(Hidden(numbers))
                    case SnapshotEnd(number=number):
                        stream.send(Held(number, whole=True))
                    case Joined():
                        self.joined = stopwatch()
        finally:
            stream.cut()

    def cut(self) -> None:
        if self._stream is not None:
            self._stream.cut()

    def pulse(self) -> None:
        if self._stream is not None:
            self._stream.send(Ping(guard.boottime()))


async def run(certificates: Certificates, port: int, hosts: Sequence[str]) -> None:
    lines = [Line(host, certificates, port) for host in hosts]
    tasks = guard.Tasks()
    for line in lines:
        tasks.start(line.run(), "line")
    tasks.start(_pulse(lines), "signs of life")
    decode = msgspec.json.Decoder(Await).decode
    while asked := await asyncio.to_thread(sys.stdin.readline):
        ask = decode(asked)
        for line in lines if ask.cut else ():
            line.cut()
        while any(line.joined <= ask.after for line in lines):
            await guard.pause(0.01)
        sys.stdout.write(f"{max(line.joined for line in lines)}\n")
        sys.stdout.flush()
    await tasks.end()


async def _pulse(lines: Sequence[Line]) -> None:
    for n in range(sys.maxsize):
        await guard.pause(PULSE_EVERY / SLICES)
        for line in lines[n % SLICES :: SLICES]:
            line.pulse()


if __name__ == "__main__":
    uvloop.run(run(Certificates(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3:]))

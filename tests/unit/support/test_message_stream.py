"""Messages on a connection: received one by one, or delivered as they arrive."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from forewarn.metadata.publishing.messages import (
    Held,
    Ping,
    ToControl,
    ToNode,
)
from forewarn.support import message_stream
from forewarn.support.message_stream import (
    BrokenConnection,
    MessageStream,
    Misbehaved,
    at_most,
    frame,
)
from helpers.host_nodes import until
from helpers.waiting import LIMIT

PINGS = [Ping(float(n)) for n in range(5)]


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[MessageStream[ToControl], socket.socket]]:
    """Control's end, and the bytes of the other one."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        _, stream = await asyncio.get_running_loop().create_connection(
            lambda: MessageStream[ToControl](ToControl), sock=ours
        )
        try:
            yield stream, theirs
        finally:
            stream.cut()


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    asyncio.run(limited())


def test_messages_are_delivered_in_order_however_they_are_split() -> None:
    sent = b"".join(map(frame, PINGS))
    delivered: list[ToControl] = []
    lengths: list[int] = []

    async def body() -> None:
        async with connection() as (stream, theirs):
            theirs.send(sent[:40])
            assert await stream.receive() == PINGS[0]
            delivering = asyncio.ensure_future(  # noqa: TID251
                stream.deliver(delivered.append, lengths.append)
            )
            for at in range(40, len(sent), 7):
                theirs.send(sent[at : at + 7])
                await asyncio.sleep(0)  # noqa: TID251
            await until(lambda: len(delivered) == len(PINGS) - 1)
            theirs.close()
            with pytest.raises(BrokenConnection):
                await delivering

    play(body)
    assert delivered == PINGS[1:]
    assert lengths == [len(frame(PINGS[0])) - 4] * len(delivered)  # each once


def test_what_arrived_before_the_end_is_received() -> None:
    async def body() -> None:
        async with connection() as (stream, theirs):
            theirs.send(frame(PINGS[0]) + frame(PINGS[1]))
            theirs.close()
            assert await stream.receive() == PINGS[0]
            await until(lambda: stream._ended)
            assert await stream.receive() == PINGS[1]
            for again in (stream.receive(), stream.drain()):
                with pytest.raises(BrokenConnection):
                    await again

    play(body)


def test_nothing_is_delivered_after_a_message_that_is_refused() -> None:
    delivered: list[ToControl] = []

    def take(message: ToControl) -> None:
        delivered.append(message)
        if isinstance(message, Held):
            raise Misbehaved("it was not asked")

    async def body() -> None:
        async with connection() as (stream, theirs):
            theirs.send(frame(PINGS[0]) + frame(Held(1)) + frame(PINGS[1]))
            with pytest.raises(Misbehaved, match="not asked"):
                await stream.deliver(take, at_most(100))

    play(body)
    assert delivered == [PINGS[0], Held(1)]


def test_no_more_is_read_than_somebody_receives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_stream, "MAX_UNREAD", 1024)
    many = [Ping(float(n)) for n in range(50_000)]

    async def body() -> None:
        async with connection() as (stream, theirs):
            sent = b"".join(map(frame, many))
            sending = asyncio.ensure_future(  # noqa: TID251
                asyncio.get_running_loop().sock_sendall(theirs, sent)
            )
            await until(lambda: not stream._reads)
            assert not sending.done()
            assert len(stream._received) < len(sent) / 2
            for ping in many:
                assert await stream.receive() == ping
            await sending

    play(body)


def test_a_sender_waits_until_the_other_end_reads() -> None:
    async def body() -> None:
        async with connection() as (stream, theirs):
            while stream._sendable is None:
                stream.send(Ping(1.0))
            draining = asyncio.ensure_future(stream.drain())  # noqa: TID251
            loop = asyncio.get_running_loop()
            while not draining.done():
                await loop.sock_recv(theirs, 65_536)
            await draining

    play(body)


def test_each_end_decodes_its_own_kind_of_messages() -> None:
    async def body() -> None:
        async with connection() as (stream, theirs):
            loop = asyncio.get_running_loop()
            _, other = await loop.create_connection(
                lambda: MessageStream[ToNode](ToNode), sock=theirs
            )
            other.send(PINGS[0])
            assert await stream.receive() == PINGS[0]
            stream.send_frame(b"\0\0\0\x01\xc0")
            with pytest.raises(Misbehaved):
                await other.receive()
            other.cut()

    play(body)

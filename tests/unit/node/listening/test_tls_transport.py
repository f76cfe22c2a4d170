"""A TLS socket as a transport: what is written arrives, whoever is slow, and how it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from forewarn.node.listening.tls_transport import HIGH_WATER, TlsTransport, accept_tls
from helpers.certificates import Authority
from helpers.host_nodes import until
from helpers.waiting import LIMIT

LARGE = 16 * 1024 * 1024  # bytes; more than the sockets of both sides hold
PIECE = 10_000

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def play(body: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await body()

    asyncio.run(limited())


async def accepted(listener: socket.socket, context: ssl.SSLContext) -> Streams:
    loop = asyncio.get_running_loop()
    plain, _ = await loop.sock_accept(listener)
    tls = await accept_tls(plain, context)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = TlsTransport(loop, tls, protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


@asynccontextmanager
async def connection(directory: Path) -> AsyncIterator[tuple[Streams, Streams]]:
    """Both ends: that of the transport, and a client's with asyncio's own."""
    authority = Authority(directory)
    pair = authority.issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    trusting = ssl.create_default_context(cafile=str(authority.path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        ours, theirs = await asyncio.gather(
            accepted(listener, context),
            asyncio.open_connection(*listener.getsockname(), ssl=trusting),
        )
    try:
        yield ours, theirs
    finally:
        for _, writer in (ours, theirs):
            writer.transport.abort()


def test_what_is_written_arrives_although_nobody_reads_for_a_while(tmp_path: Path) -> None:
    data = os.urandom(LARGE)

    async def send(writer: asyncio.StreamWriter) -> None:
        for at in range(0, LARGE, PIECE):
            writer.write(data[at : at + PIECE])
            await writer.drain()

    async def body() -> None:
        async with connection(tmp_path) as (ours, theirs):
            for (_, writer), (reader, _) in ((ours, theirs), (theirs, ours)):
                sending = asyncio.ensure_future(send(writer))  # noqa: TID251
                transport = writer.transport
                await until(lambda transport=transport: transport.get_write_buffer_size() > 0)  # type: ignore[misc]
                assert not sending.done()
                if writer is ours[1]:
                    assert transport.get_write_buffer_size() <= HIGH_WATER + PIECE
                assert await reader.readexactly(LARGE) == data
                await sending

    play(body)


def test_what_is_queued_is_sent_before_it_is_closed(tmp_path: Path) -> None:
    data = os.urandom(LARGE)

    async def body() -> None:
        async with connection(tmp_path) as ((_, writer), (reader, _)):
            writer.write(data)
            assert writer.transport.get_write_buffer_size() > 0
            writer.close()
            assert writer.is_closing()
            writer.write(b"too late")
            assert await reader.read(-1) == data
            await writer.wait_closed()

    play(body)


@pytest.mark.parametrize("ends", ["in order", "at once"])
def test_the_other_side_ends_the_connection(tmp_path: Path, ends: str) -> None:
    async def body() -> None:
        async with connection(tmp_path) as ((reader, writer), (_, theirs)):
            theirs.write(b"last")
            await theirs.drain()
            assert await reader.readexactly(4) == b"last"
            if ends == "in order":
                theirs.close()
            else:
                theirs.transport.abort()
            assert await reader.read(-1) == b""
            assert writer.is_closing()
            await writer.wait_closed()

    play(body)


def test_an_aborted_connection_sends_nothing_more(tmp_path: Path) -> None:
    async def body() -> None:
        async with connection(tmp_path) as ((_, writer), (reader, _)):
            writer.write(os.urandom(LARGE))
            writer.transport.abort()
            writer.transport.abort()
            assert writer.transport.get_write_buffer_size() == 0
            await writer.wait_closed()
            with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
                await reader.readexactly(LARGE)

    play(body)


def test_a_peer_without_tls_gets_no_connection(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    async def body() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(ssl.SSLError):
                await accept_tls(ours, context)
            assert ours.fileno() < 0

    play(body)

"""Lines between the processes of one machine: a UNIX socket that only our own user may open.

What is said over them is `metadata.lines`; a line to another machine would be another file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from forewarn.metadata.hub import Hub
from forewarn.metadata.remote import Dial
from forewarn.node.sockets import CannotListen

MAX_SOCKET_PATH = 107  # bytes of a UNIX socket's path, set by the kernel
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid

log = structlog.get_logger("forewarn")


def too_long(path: Path) -> bool:
    return len(os.fsencode(path)) > MAX_SOCKET_PATH


def open_line(path: Path) -> socket.socket:
    """The state file is ours alone by now, so whatever stands there was left by an earlier life."""
    if too_long(path):
        raise CannotListen(
            f"upstream = {path}: the path of a socket has at most {MAX_SOCKET_PATH} bytes;"
            " set upstream to a shorter one"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it has a name, so that it never was open
        if path.is_socket():
            path.unlink()
        listener.bind(os.fspath(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise CannotListen(f"upstream = {path}: {error.strerror or error}") from error
    return listener


async def attend(
    path: Path, hub: Hub, leave_to: Callable[[Callable[[], Awaitable[None]]], object]
) -> None:
    """Let workers of our own user in, until what is handed to `leave_to` is called."""
    listener = open_line(path)

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid, _ = _CREDENTIALS.unpack(
            writer.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
        )
        if uid != os.geteuid():
            log.warning(
                "a stranger is refused at the workers' socket",
                user=uid,
                process=pid,
                ours=os.geteuid(),
            )
            writer.transport.abort()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await hub.attend(reader, writer, pid)

    server = await asyncio.start_unix_server(met, sock=listener)

    async def stop() -> None:
        server.close()
        hub.close()
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - as quick as it gets, and the loop has nothing to do

    leave_to(stop)


def dialler(path: Path) -> Dial:
    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(path)

    return dial

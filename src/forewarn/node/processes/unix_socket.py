"""Lines between the processes of one machine: a UNIX socket that only our own user may open.

What is said over them is `metadata.lines`; a line to another machine would be another file. By
which process of this machine a worker is, also one that stands still, is `worker_marks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from forewarn.metadata.workers.hub import WATCH_EVERY, Hub
from forewarn.metadata.workers.remote_upstream import Dial
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.processes.worker_marks import WorkerMark, marked, peer
from forewarn.support import guard
from forewarn.support.logs import logger

MAX_SOCKET_PATH = 107  # bytes of a UNIX socket's path, set by the kernel
ANSWERS_WITHIN = 1.0  # seconds in which somebody who listens is reached

log = logger("forewarn")


def too_long(path: Path) -> bool:
    return len(os.fsencode(path)) > MAX_SOCKET_PATH


def open_line(path: Path) -> socket.socket:
    """Whatever stands there and does not answer was left by an earlier life."""
    if too_long(path):
        raise CannotListen(
            f"upstream = {path}: the path of a socket has at most {MAX_SOCKET_PATH} bytes;"
            " set upstream to a shorter one"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it has a name, so that it never was open
        if path.is_socket():
            if _answers(path):
                raise CannotListen(
                    f"upstream = {path}: another service listens there;"
                    " give each service an upstream of its own"
                )
            path.unlink()
        listener.bind(os.fspath(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise CannotListen(f"upstream = {path}: {error.strerror or error}") from error
    except CannotListen:
        listener.close()
        raise
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(ANSWERS_WITHIN)
        try:
            asking.connect(os.fspath(path))
        except (TimeoutError, BlockingIOError):
            return True  # too busy to take us, but there
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        return True


class WorkerSocket:
    """The socket at which control lets workers in, for as long as it is there."""

    def __init__(self, path: Path, hub: Hub) -> None:
        self._path = path
        self._hub = hub
        self._server: asyncio.Server | None = None
        self._ours: tuple[int, int] | None = None  # what stands at the path, as we made it

    async def open(self) -> None:
        listener = open_line(self._path)
        self._ours = self._stands_there()
        self._server = await asyncio.start_unix_server(self._met, sock=listener)

    async def keep(self) -> None:
        """For ever. If somebody takes our socket's name away, no worker could find us."""
        while True:
            await guard.pause(WATCH_EVERY)
            if self._stands_there() == self._ours:
                continue
            before = self._server
            try:
                await self.open()
            except CannotListen as error:
                log.error("workers cannot find the control process", why=str(error))
                continue
            log.warning("the workers' socket was gone, and is there again", path=str(self._path))
            if before is not None:
                before.close()  # whoever came in through it stays

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._hub.close()
        if self._stands_there() == self._ours:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108 - as quick as it gets

    def _stands_there(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - and this
        except OSError:
            return None
        return found.st_dev, found.st_ino

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = peer(writer.get_extra_info("socket"))
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
            await self._hub.serve(reader, writer, pid)


async def attend(
    path: Path, hub: Hub, leave_to: Callable[[Callable[[], Awaitable[None]]], object]
) -> WorkerSocket:
    """Let workers of our own user in, until what is handed to `leave_to` is called."""
    doorstep = WorkerSocket(path, hub)
    await doorstep.open()
    for worker in range(hub.expected):
        if (pid := marked(path, worker)) is not None:
            hub.expect(worker, pid)
    leave_to(doorstep.close)
    return doorstep


def dialler(path: Path, mark: WorkerMark | None = None) -> Dial:
    """The mark is shown before anybody is told anything."""

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if mark is not None:
            mark.show()
        try:
            return await asyncio.open_unix_connection(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error

    return dial

"""The connections between control process and workers: a UNIX socket that only our own user can
open.

The messages on it are in `metadata.publishing.messages`. Workers that run, but do not connect, are
found by `worker_marks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from forewarn.metadata.publishing.hub import WATCH_EVERY, Hub
from forewarn.metadata.publishing.remote_upstream import Dial
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.listening.unix_socket import open_unix_socket
from forewarn.node.processes.worker_marks import WorkerMark, find_worker, peer
from forewarn.support import guard
from forewarn.support.logs import logger

log = logger("forewarn")


class WorkerSocket:
    """The listening socket of the control process, to which workers connect."""

    def __init__(self, path: Path, hub: Hub) -> None:
        self._path = path
        self._hub = hub
        self._server: asyncio.Server | None = None
        self._file_id: tuple[int, int] | None = None  # of the socket that was opened

    async def open(self) -> None:
        listener = open_unix_socket(self._path, "upstream")
        self._file_id = self._current_file_id()
        self._server = await asyncio.start_unix_server(self._connected, sock=listener)

    async def keep_open(self) -> None:
        """Open the socket again whenever its file is removed or replaced, since workers could not
        connect otherwise."""
        while True:
            await guard.pause(WATCH_EVERY)
            if self._current_file_id() == self._file_id:
                continue
            previous = self._server
            try:
                await self.open()
            except CannotListen as error:
                log.error("workers cannot connect to the control process", why=str(error))
                continue
            log.warning(
                "the workers' socket had been removed, and was opened again", path=str(self._path)
            )
            if previous is not None:
                previous.close()  # its connections stay open

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._hub.close()
        if self._current_file_id() == self._file_id:
            with contextlib.suppress(OSError):
                os.unlink(self._path)  # noqa: PTH108 - faster than pathlib

    def _current_file_id(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - faster than pathlib
        except OSError:
            return None
        return status.st_dev, status.st_ino

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = peer(writer.get_extra_info("socket"))
        if uid != os.geteuid():
            log.warning(
                "a process of another user was refused at the workers' socket",
                user=uid,
                process=pid,
                ours=os.geteuid(),
            )
            writer.transport.abort()
            return
        with contextlib.suppress(asyncio.CancelledError):
            await self._hub.serve(reader, writer, pid)


async def open_worker_socket(path: Path, hub: Hub) -> WorkerSocket:
    """Open the socket for workers, and tell the hub which of them are already running."""
    worker_socket = WorkerSocket(path, hub)
    await worker_socket.open()
    for worker in range(hub.expected):
        if (pid := find_worker(path, worker)) is not None:
            hub.expect(worker, pid)
    return worker_socket


def make_dial(path: Path, mark: WorkerMark | None = None) -> Dial:
    """Return the function with which a worker connects to the control process. It shows the
    worker's mark first."""

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if mark is not None:
            mark.show()
        try:
            return await asyncio.open_unix_connection(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error

    return dial

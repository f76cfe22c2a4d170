"""Tells a new control process which worker processes are already running.

A worker that is stopped (SIGSTOP, a stalled machine) does not connect to a new control process,
but may continue later and answer with old documents. It has to be found without its cooperation.
Therefore each worker listens on an abstract UNIX socket, and the kernel tells whose it is.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id at the other end of a UNIX socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return pid, uid


def _name(path: Path, worker: int) -> bytes:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return b"\0forewarn-%s-%d" % (digest.encode(), worker)


class WorkerMark:
    """The mark of a worker: an abstract UNIX socket that it listens on."""

    def __init__(self, path: Path, worker: int) -> None:
        self._name = _name(path, worker)
        self._listener: socket.socket | None = None

    def show(self) -> None:
        """Listen from the first call on; later calls drop the connections that were made since.
        (The kernel answers for the worker, so there is nothing to say on them.)"""
        if self._listener is not None:
            _drop_connections(self._listener)
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._name)
            listener.listen()
        except OSError:  # the previous worker has not ended yet; tried again at the next call
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


def _drop_connections(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


def find_worker(path: Path, worker: int) -> int | None:
    """Return the process id of a worker of our own user, or None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(_name(path, worker))
        except OSError:
            return None
        pid, uid = peer(connection)
    return pid if uid == os.geteuid() else None

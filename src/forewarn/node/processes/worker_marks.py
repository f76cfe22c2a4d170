"""By which process of this machine a worker is, for a control process that was started after it.

A worker that stands still does not come to a control that is new, and goes on some day with what
it showed before: it has to be found without its help. So each listens on a name that exists only
in memory, whatever becomes of files, and the kernel says whose it is.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def peer(other: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    said = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(said)
    return pid, uid


def _name(path: Path, worker: int) -> bytes:
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]
    return b"\0forewarn-%s-%d" % (digest.encode(), worker)


class WorkerMark:
    """A worker's own."""

    def __init__(self, path: Path, worker: int) -> None:
        self._name = _name(path, worker)
        self._listener: socket.socket | None = None

    def show(self) -> None:
        """From the first call on. Whoever asked before has been answered by the kernel."""
        if self._listener is not None:
            _clear(self._listener)
            return
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self._name)
            listener.listen()
        except OSError:  # whoever was there before us is not gone yet: at the next call
            listener.close()
            return
        listener.setblocking(False)
        self._listener = listener

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()


def _clear(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


def marked(path: Path, worker: int) -> int | None:
    """The process of that worker, if there is one, of our own user's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_name(path, worker))
        except OSError:
            return None
        pid, uid = peer(asking)
    return pid if uid == os.geteuid() else None

"""Standard error as somewhere to tell things, whether or not anybody is there to read them.

A log that cannot be written (a closed pipe, a full disk, no standard error at all) does not stop
the service, and neither does one that nobody reads any more. What can be written at once is, by
whoever says it; what cannot waits for a thread of its own, up to a limit, and then it is counted.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import select
import socket
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable

MAX_WAITING = 1024 * 1024  # bytes of lines that wait until somebody reads
LAST_WORDS = 2.0  # seconds that the end of the process waits for a reader

_ATOMIC = select.PIPE_BUF  # bytes that a pipe takes as a whole or not at all


class StderrWriter:
    """`lost` is told how many lines nobody will ever read, when there is a reader again."""

    def __init__(self, lost: Callable[[int], None]) -> None:
        self._lost = lost
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._quick: tuple[int, Quick] | None = None

    def write(self, text: str) -> int:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._write(text)
        return len(text)

    def flush(self) -> None:
        """A line is written as it is said."""

    def _write(self, text: str) -> None:
        err = sys.stderr
        try:
            number = err.fileno()
        except (OSError, ValueError):  # not a file: somebody reads along
            err.write(text)
            err.flush()
            return
        if self._quick is None or self._quick[0] != number or not self._quick[1].still(number):
            if self._quick is not None:
                self._quick[1].close()
            self._quick = number, Quick(number)
        quick = self._quick[1]
        err.flush()
        data = text.encode(errors="backslashreplace")
        with self._changed:
            if not self._waiting:
                data = data[quick.write(data) :]
            if data:
                self._put_by(data)

    def _put_by(self, data: bytes) -> None:
        if self._bytes + len(data) > MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(data)
        self._bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_on, name="log", daemon=True)
            self._thread.start()
            atexit.register(self.wait)

    def wait(self, seconds: float = LAST_WORDS) -> None:
        """Until all is written, or until it is clear that nobody reads it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, seconds)

    def _write_on(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    dropped, self._dropped, self._thread = self._dropped, 0, None
                    break
                data = self._waiting[0]
            with contextlib.suppress(OSError, ValueError, AttributeError):
                _write_all(sys.stderr.fileno(), data)
            with self._changed:
                self._waiting.popleft()  # only now, so that nobody overtakes it
                self._bytes -= len(data)
                self._changed.notify_all()
        if dropped:
            self._lost(dropped)


class Quick:
    """What a file takes without letting anybody wait."""

    def __init__(self, number: int) -> None:
        self._of = _identity(number)
        self._own = -1  # a way of our own to it, which never waits
        self._socket: socket.socket | None = None
        mode = os.fstat(number).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(number))
        elif self._waits:
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = os.open(f"/proc/self/fd/{number}", flags)
        self._number = number

    def still(self, number: int) -> bool:
        return _identity(number) == self._of

    def write(self, data: bytes) -> int:
        """How many bytes of it were written."""
        if not self._waits:
            _write_all(self._number, data)
            return len(data)
        if self._socket is None and (self._own < 0 or len(data) > _ATOMIC):
            return 0
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            return os.write(self._own, data)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                return 0
            raise

    def close(self) -> None:
        if self._own >= 0:
            os.close(self._own)
        if self._socket is not None:
            self._socket.close()


def _identity(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


def _write_all(number: int, data: bytes) -> None:
    """However long it takes."""
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:  # somebody who shares it has made it so
            select.select([], [number], [])

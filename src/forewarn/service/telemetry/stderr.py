"""Non-blocking writes to standard error.

A log that cannot be written (a closed pipe, a full disk, no standard error at all) does not stop
the service, and neither does one that nobody reads. What can be written at once is written by the
caller; the rest waits for a thread, up to a limit, and lines beyond that are dropped and counted.
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

from forewarn.support.system import ON_LINUX

MAX_WAITING = 1024 * 1024  # bytes of lines that wait to be written
EXIT_TIMEOUT = 2.0  # seconds for which the end of the process waits for a reader

_ATOMIC = getattr(select, "PIPE_BUF", 0)  # bytes that a pipe takes as a whole or not at all
_NOT_BLOCKING = getattr(socket, "MSG_DONTWAIT", 0) | getattr(socket, "MSG_NOSIGNAL", 0)


class StderrWriter:
    """`on_dropped` is called with the number of dropped lines, once lines can be written again."""

    def __init__(self, on_dropped: Callable[[int], None]) -> None:
        self._on_dropped = on_dropped
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._file: tuple[int, NonBlockingFile] | None = None

    def write(self, text: str) -> int:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._write(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are not buffered."""

    def _write(self, text: str) -> None:
        err = sys.stderr
        try:
            number = err.fileno()
        except (OSError, ValueError):  # not a file: captured by a test
            err.write(text)
            err.flush()
            return
        if self._file is None or self._file[0] != number or not self._file[1].still(number):
            if self._file is not None:
                self._file[1].close()
            self._file = number, NonBlockingFile(number)
        file = self._file[1]
        err.flush()
        data = text.encode(errors="backslashreplace")
        with self._changed:
            if not self._waiting:
                data = data[file.write(data) :]
            if data:
                self._queue(data)

    def _queue(self, data: bytes) -> None:
        if self._bytes + len(data) > MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(data)
        self._bytes += len(data)
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_queue, name="log", daemon=True)
            self._thread.start()
            atexit.register(self.wait)

    def wait(self, seconds: float = EXIT_TIMEOUT) -> None:
        """Wait until everything is written, or for `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, seconds)

    def _write_queue(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    dropped, self._dropped, self._thread = self._dropped, 0, None
                    break
                data = self._waiting[0]
            with contextlib.suppress(OSError, ValueError, AttributeError):
                _write_all(sys.stderr.fileno(), data)
            with self._changed:
                self._waiting.popleft()  # only now, so that no other line overtakes it
                self._bytes -= len(data)
                self._changed.notify_all()
        if dropped:
            self._on_dropped(dropped)


class NonBlockingFile:
    """A file descriptor that is written without blocking."""

    def __init__(self, number: int) -> None:
        self._of = _identity(number)
        self._own = -1  # a descriptor of our own, which never blocks
        self._socket: socket.socket | None = None
        mode = os.fstat(number).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(number))
        elif self._waits and ON_LINUX:  # elsewhere a thread writes every line
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._own = os.open(f"/proc/self/fd/{number}", flags)
        self._number = number

    def still(self, number: int) -> bool:
        return _identity(number) == self._of

    def write(self, data: bytes) -> int:
        """Write what is possible, and return how many bytes that was."""
        if not self._waits:
            _write_all(self._number, data)
            return len(data)
        if self._socket is None and (self._own < 0 or len(data) > _ATOMIC):
            return 0
        try:
            if self._socket is not None:
                return self._socket.send(data, _NOT_BLOCKING)
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
    status = os.fstat(number)
    return status.st_dev, status.st_ino


def _write_all(number: int, data: bytes) -> None:
    """Write everything, however long that takes."""
    while data:
        try:
            data = data[os.write(number, data) :]
        except BlockingIOError:  # another process that shares it has made it non-blocking
            select.select([], [number], [])

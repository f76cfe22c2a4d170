"""A flag that a signal handler may set while the main thread waits for it.

`threading.Event` is not made for that: the handler runs in the main thread, and waits for ever if
it interrupts `wait` at a moment when that holds the lock of the event.
"""

from __future__ import annotations

import contextlib
import select
import socket


class SignalFlag:
    def __init__(self) -> None:
        self._set = False
        self._receiving, self._sending = socket.socketpair()
        self._sending.setblocking(False)

    def set(self) -> None:
        self._set = True
        with contextlib.suppress(BlockingIOError):  # there is enough to wake it up
            self._sending.send(b".")

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> None:
        """Return when the flag is set, or after so many seconds."""
        if not self._set:
            select.select([self._receiving], [], [], seconds)

    def close(self) -> None:
        self._receiving.close()
        self._sending.close()

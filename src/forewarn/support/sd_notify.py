"""Telling a service manager how things are: systemd's notification protocol (sd_notify).

Datagrams of `KEY=value` lines to the socket that NOTIFY_SOCKET names. Where there is none nothing
is sent. What is told, and when, is decided by whoever runs the service, or the agent; and how a
log is written, too.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Any, Self

from forewarn.support import guard

WATCH_SHARE = 3  # signs of life in the time after which the manager takes us for dead
STATUS_EVERY = 15.0  # seconds of guard time between two looks at how things are
MAX_STATUS = 400  # characters

# Meant for this process alone; a program that we start must not speak in our name.
OURS = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        self._address = address
        self.watchdog = watchdog  # seconds; 0: nobody watches
        self._complained = False

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Self:
        """As the environment says, from which it is removed."""
        said = {name: environment.pop(name, "") for name in OURS}
        address = said["NOTIFY_SOCKET"]
        if not address.startswith(("/", "@")):  # vsock, for virtual machines, is not spoken
            address = ""
        return cls(address, _watchdog(said["WATCHDOG_USEC"], said["WATCHDOG_PID"]))

    @property
    def heard(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """systemd wants to know when, to tell this from an older one."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={guard.monotonic_us()}")

    def stopping(self) -> None:
        self._send("STOPPING=1", _status("stopping"))

    def status(self, status: str) -> None:
        self._send(_status(status))

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    async def keep_telling(
        self,
        status: Callable[[], str],
        well: Callable[[], str],
        status_every: float = STATUS_EVERY,
    ) -> None:
        """A sign of life as long as all is well, and how things stand when that changes.

        `well` says what is not, or nothing. It is asked in the loop that serves: one that is
        stuck asks nobody, and so is silent."""
        told = ""
        since_status, complained = 0.0, ""
        every = min(status_every, self.watchdog / WATCH_SHARE) if self.watchdog else status_every
        while self.heard:
            wrong = well()
            if not wrong and self.watchdog:
                self.alive()
            elif wrong and wrong != complained:
                self._tell("error", "no sign of life for the service manager", why=wrong)
            complained = wrong
            now = guard.monotonic()
            if wrong or not told or now - since_status >= status_every:
                current, since_status = f"not well: {wrong}" if wrong else status(), now
                if current != told:
                    self.status(current)
                    told = current
            await guard.pause(every)

    def _tell(self, level: str, says: str, **facts: Any) -> None:
        """For whoever has a log."""

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.setblocking(False)  # a manager that does not listen must not stop the service
                with contextlib.suppress(OSError):
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                line.sendto("\n".join(lines).encode(), address)
            self._complained = False
        except OSError as error:
            if not self._complained:
                self._tell(
                    "warning", "the service manager cannot be told", why=str(error), what=lines[0]
                )
            self._complained = True


def _status(text: str) -> str:
    words = " ".join(text.split())
    return f"STATUS={words[:MAX_STATUS]}"


def _watchdog(microseconds: str, pid: str) -> float:
    """How often a sign of life is wanted of this process."""
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0

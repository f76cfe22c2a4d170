"""A client of systemd's notification protocol (sd_notify): readiness, status and watchdog.

Sends datagrams of `KEY=value` lines to the socket that NOTIFY_SOCKET names; without one, nothing is
sent. What is sent and when is decided by the service or the agent, and so is how problems are
logged.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol, Self

from forewarn.support import guard

MESSAGES_PER_PERIOD = 3  # of the watchdog
STATUS_EVERY = 15.0  # seconds of guard time between two status messages
MAX_STATUS = 400  # characters

# For this process alone: a program that it starts must not send messages in its name.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Log(Protocol):
    def __call__(self, level: str, message: str, /, **fields: Any) -> object: ...


def _no_log(level: str, message: str, /, **fields: Any) -> None:
    del level, message, fields


class Notifier:
    """Sends messages to the service manager, and reports what went wrong to `log`."""

    def __init__(self, address: str = "", watchdog: float = 0.0, log: Log = _no_log) -> None:
        self._address = address
        self.watchdog = (
            watchdog  # period in seconds within which the manager expects a message; 0: none
        )
        self._log = log
        self._failing = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str], log: Log = _no_log) -> Self:
        """Read systemd's variables, and remove them so that child processes do not see them."""
        variables = {name: environment.pop(name, "") for name in VARIABLES}
        address = variables["NOTIFY_SOCKET"]
        if not address.startswith(("/", "@")):  # vsock, for virtual machines, is not supported
            address = ""
        watchdog = _watchdog(variables["WATCHDOG_USEC"], variables["WATCHDOG_PID"])
        return cls(address, watchdog, log)

    @property
    def connected(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._send("READY=1", _status(status))

    def reloading(self) -> None:
        """Announce a reload, with its time: systemd distinguishes reloads by it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={guard.monotonic_us()}")

    def stopping(self) -> None:
        self._send("STOPPING=1", _status("stopping"))

    def status(self, status: str) -> None:
        self._send(_status(status))

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    async def keep_notifying(
        self,
        status: Callable[[], str],
        problem: Callable[[], str],
        status_every: float = STATUS_EVERY,
    ) -> None:
        """Send watchdog messages while there is no problem, and the status when it changes.

        `problem` returns what is wrong, or "". It is called in the event loop that serves, so that
        a loop that is stuck sends nothing."""
        sent = logged = ""
        status_at = 0.0
        every = (
            min(status_every, self.watchdog / MESSAGES_PER_PERIOD)
            if self.watchdog
            else status_every
        )
        while self.connected:
            why = problem()
            if not why and self.watchdog:
                self.alive()
            elif why and why != logged:
                self._log(
                    "error", "watchdog messages to the service manager are suspended", why=why
                )
            logged = why
            now = guard.monotonic()
            if why or not sent or now - status_at >= status_every:
                text, status_at = f"not well: {why}" if why else status(), now
                if text != sent:
                    self.status(text)
                    sent = text
            await guard.pause(every)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)  # a manager that does not read must not stop the service
                with contextlib.suppress(OSError):
                    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                sender.sendto("\n".join(lines).encode(), address)
            self._failing = False
        except OSError as error:
            if not self._failing:
                message = "cannot send a message to the service manager"
                self._log("warning", message, why=str(error), what=lines[0])
            self._failing = True


def _status(text: str) -> str:
    line = " ".join(text.split())
    return f"STATUS={line[:MAX_STATUS]}"


def _watchdog(microseconds: str, pid: str) -> float:
    """Return the watchdog period in seconds, or 0 if it is not for this process."""
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0

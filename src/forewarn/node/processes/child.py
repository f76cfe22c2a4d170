"""A process that the supervisor keeps running: starts it, reads its messages, and reaps it.

The process gets its specification on standard input, so that nothing of it is visible on a command
line. It writes the messages below to standard output, and its log to standard error, which it
shares with the supervisor.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from forewarn.support import guard

RESTART_FIRST, RESTART_MOST = 0.1, 2.0  # seconds before a process that has ended is restarted
STABLE_AFTER = 5.0  # seconds after which a process that ends is restarted without back-off
MAX_LINE = 1024 * 1024  # bytes of a message

CONTROL = "control"  # the name of the control process
STOP_FINALLY = signal.SIGUSR2  # stop, and first answer waiting connections: no process follows
PROGRAM = ("-m", "forewarn.node.daemon.process_main")

# Messages of a process: a word and a JSON value on one line.
READY = "ready"  # with its URLs
ALIVE = "alive"  # with a status for people
UNHEALTHY = "unhealthy"  # with the problem; does not count as a sign of life
SETTINGS = "settings"  # in force; for processes that are started later
LEASE = "lease"  # until when it may decide, in boot time; null: it has given that back
RELOADED = "reloaded"  # with true if the new settings were refused, and nothing has changed


def interpreter() -> list[str]:
    """Return the command that runs this Python, without importing from the working directory."""
    return [sys.executable, "-I" if sys.flags.isolated else "-P"]


class Child:
    """One supervised process across restarts: its command, pid, readiness and back-off."""

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        fds: Sequence[int] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.name = name
        self.spec = spec
        self._fds = fds
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.pidfd = self.stdout_fd = -1
        self._unread = b""  # the beginning of a message
        self.ready: dict[str, Any] | None = None  # its URLs; None: it is not ready
        self.settings: dict[str, Any] | None = None  # that it has reported and nobody has read yet
        self.refused: bool | None = None  # outcome of its last reload; None: not known yet
        self.lease: float | None = None  # until when it may decide, also after it has ended
        self.lease_pid = 0  # of the process that has reported it
        self.status = ""  # for people
        self.problem = ""  # why it is unhealthy
        self.started_at = 0.0
        self.alive_at = 0.0  # time of its last sign of life
        self.served_at = 0.0  # the same while it was ready, across restarts
        self.due: float | None = 0.0  # when it is to be started; None: it runs
        self.back_off = RESTART_FIRST  # seconds

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        stdin = os.memfd_create("forewarn", os.MFD_CLOEXEC)
        try:
            os.write(stdin, json.dumps({**self.spec, "parent": os.getpid()}).encode())
            os.lseek(stdin, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                [*interpreter(), *self._program, self.name],
                stdin=stdin,
                stdout=subprocess.PIPE,
                pass_fds=self._fds,
                process_group=0,  # ctrl-C reaches only the supervisor, which stops them in order
            )
        finally:
            os.close(stdin)
        assert self._process.stdout is not None
        self.pidfd, self.stdout_fd = os.pidfd_open(self._process.pid), self._process.stdout.fileno()
        os.set_blocking(self.stdout_fd, False)
        self._unread, self.ready, self.settings, self.problem = b"", None, None, ""
        self.started_at = self.alive_at = guard.monotonic()
        self.due = None

    def read_messages(self) -> bool:
        """Read the messages that have arrived. Returns False at the end of its output."""
        try:
            data = os.read(self.stdout_fd, 65_536)
        except BlockingIOError:
            return True
        *lines, self._unread = (self._unread + data)[-MAX_LINE:].split(b"\n")
        for line in lines:
            word, _, value = line.decode(errors="replace").partition(" ")
            with contextlib.suppress(ValueError):
                self._handle(word, json.loads(value))
        return bool(data)

    def _handle(self, word: str, value: Any) -> None:
        if word == UNHEALTHY:
            self.problem = str(value)
            return
        if word == LEASE:
            self.lease, self.lease_pid = value, self.pid
            return
        if word == READY:
            self.ready = value
        elif word == ALIVE:
            self.status, self.problem = str(value), ""
        elif word == SETTINGS:
            self.settings = value
        elif word == RELOADED:
            self.refused = bool(value)
        else:
            return
        self.alive_at = guard.monotonic()
        if self.ready is not None:
            self.served_at = self.alive_at

    def reap(self) -> str:
        """Clean up after the process has ended, schedule its restart, and return how it ended."""
        assert self._process is not None
        code = self._process.wait()
        os.close(self.pidfd)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process, self.ready = None, None
        now = guard.monotonic()
        stable = now - self.started_at >= STABLE_AFTER
        self.back_off = RESTART_FIRST if stable else min(2 * self.back_off, RESTART_MOST)
        self.due = now + self.back_off
        return f"killed by {_name(-code)}" if code < 0 else f"exited with status {code}"

    def send(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""A process that the supervisor keeps running: how it is started, what it says, how it ended.

What it is to do it is told on its standard input, so that nothing of it is on a command line. On
its standard output it says when it is ready, that it lives and how it is, what came of reading its
settings anew, and by which it goes; all else it says on standard error, which is ours.
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

RESTART_FIRST, RESTART_MOST = 0.1, 2.0  # seconds before what has died is started again
LIVED_WELL = 5.0  # seconds after which a death says nothing of the next life
MAX_LINE = 1024 * 1024  # bytes of a line that a process says of itself

CONTROL = "control"
FOR_GOOD = signal.SIGUSR2  # stop, and nobody comes after you: answer whoever is in line
PROGRAM = ("-m", "forewarn.node.daemon.process_main")

# What it says of itself: a word and a value (JSON), each on a line of its own.
READY = "ready"  # where it is to be asked
ALIVE = "alive"  # and how things stand, in words for people
UNWELL = "unwell"  # what is wrong with it: this is no sign of life
SETTINGS = "settings"  # by which whoever is started later goes
REREAD = "reread"  # it has read its settings anew; true: they are wrong, and nothing has changed


def interpreter() -> list[str]:
    """This one, and no more of what lies around than it has taken itself: never what is in the
    working directory."""
    return [sys.executable, "-I" if sys.flags.isolated else "-P"]


class Child:
    """In all its lives."""

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
        self.pidfd = self.saying = -1
        self._said = b""
        self.ready: dict[str, Any] | None = None  # what it has said when it was
        self.settings: dict[str, Any] | None = None  # that it goes by from now on
        self.refused: bool | None = None  # were the settings wrong that it has read? None: it reads
        self.status = ""  # how things stand, in words
        self.unwell = ""  # what is wrong with it
        self.began = 0.0
        self.heard = 0.0  # when it last gave a sign of life
        self.served = 0.0  # when it last did so while it was ready, in whichever life
        self.due: float | None = 0.0  # when it is to be started; None: it runs
        self.pause = RESTART_FIRST

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        told = os.memfd_create("forewarn", os.MFD_CLOEXEC)
        try:
            os.write(told, json.dumps({**self.spec, "parent": os.getpid()}).encode())
            os.lseek(told, 0, os.SEEK_SET)
            self._process = subprocess.Popen(
                [*interpreter(), *self._program, self.name],
                stdin=told,
                stdout=subprocess.PIPE,
                pass_fds=self._fds,
                process_group=0,  # ctrl-C reaches the supervisor alone, and it says who goes first
            )
        finally:
            os.close(told)
        assert self._process.stdout is not None
        self.pidfd, self.saying = os.pidfd_open(self._process.pid), self._process.stdout.fileno()
        os.set_blocking(self.saying, False)
        self._said, self.ready, self.settings, self.unwell = b"", None, None, ""
        self.began = self.heard = guard.monotonic()
        self.due = None

    def hear(self) -> bool:
        """What it says of itself. False when it says no more."""
        try:
            more = os.read(self.saying, 65_536)
        except BlockingIOError:
            return True
        *lines, self._said = (self._said + more)[-MAX_LINE:].split(b"\n")
        for line in lines:
            word, _, said = line.decode(errors="replace").partition(" ")
            with contextlib.suppress(ValueError):
                self._take(word, json.loads(said))
        return bool(more)

    def _take(self, word: str, said: Any) -> None:
        if word == UNWELL:
            self.unwell = str(said)
            return  # it can speak, but that is all
        if word == READY:
            self.ready = said
        elif word == ALIVE:
            self.status, self.unwell = str(said), ""
        elif word == SETTINGS:
            self.settings = said
        elif word == REREAD:
            self.refused = bool(said)
        else:
            return
        self.heard = guard.monotonic()
        if self.ready is not None:
            self.served = self.heard

    def reap(self) -> str:
        """It has ended: how? It is due again after a pause, longer if it did not live well."""
        assert self._process is not None
        code = self._process.wait()
        os.close(self.pidfd)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process, self.ready = None, None
        now = guard.monotonic()
        lived_well = now - self.began >= LIVED_WELL
        self.pause = RESTART_FIRST if lived_well else min(2 * self.pause, RESTART_MOST)
        self.due = now + self.pause
        return f"it was killed ({_name(-code)})" if code < 0 else f"it ended with status {code}"

    def send(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

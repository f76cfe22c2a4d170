"""A process that a test has started: its lines as they come, its end, and how to bring that about.

Waiting is always for something the process does (a line, its end), never for time to pass.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import selectors
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

from helpers.waiting import LIMIT

PIPE_BYTES = 65_536  # which are all that a pipe holds


class Running:
    """A process inside a namespace; its output is read as it comes, so no pipe ever fills up.

    One thread reads both pipes. When a line of standard output is handed out, everything that the
    process had written to standard error before it is in `stderr`.
    """

    def __init__(self, process: subprocess.Popen[str], argv: Sequence[str]) -> None:
        self.process = process
        self.argv = argv
        self.stdout: list[str] = []
        self.stderr: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with (
            self.process.stdout as out,
            self.process.stderr as err,
            selectors.DefaultSelector() as waiting,
        ):
            stdout, stderr = _Pipe(out), _Pipe(err)
            for pipe in (stdout, stderr):
                waiting.register(pipe.fd, selectors.EVENT_READ, pipe)
            while waiting.get_map():
                waiting.select()
                printed = stdout.read()
                self.stderr += stderr.read()  # later, so that nothing is missing from it
                self.stdout += printed
                for line in printed:
                    self._lines.put(line.rstrip("\n"))
                for pipe in (stdout, stderr):
                    if pipe.ended and pipe.fd in waiting.get_map():
                        waiting.unregister(pipe.fd)
                        if pipe is stdout:
                            self._lines.put(None)

    def line(self, timeout: float = LIMIT) -> str:
        """The next line on standard output."""
        for line in self.lines(timeout):
            return line
        raise self.failure("ended without another line")

    def lines(self, timeout: float = LIMIT) -> Iterator[str]:
        """All lines on standard output, to its end, each of which may take that long."""
        while True:
            try:
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                raise self.failure(f"no line within {timeout:g} s") from None
            if line is None:
                self._lines.put(None)
                return
            yield line

    def message(self, timeout: float = LIMIT) -> dict[str, Any]:
        """The next line on standard output, as a JSON object."""
        message = json.loads(self.line(timeout))
        assert isinstance(message, dict), message
        return message

    def expect(self, timeout: float = LIMIT, **fields: object) -> dict[str, Any]:
        """Read JSON lines until one has all these fields with these values, and return it."""
        while True:
            message = self.message(timeout)
            if all(key in message and message[key] == value for key, value in fields.items()):
                return message

    def wait(self, timeout: float = LIMIT) -> int:
        """The exit status, once the process has ended by itself and all it said is read."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failure(f"still running after {timeout:g} s") from None
        self._reader.join(timeout)
        return status

    def stop(self) -> int:
        """Terminate, and kill what does not heed it; the exit status."""
        if self.process.poll() is None:
            end([os.pidfd_open(self.process.pid)], signal.SIGTERM, patience=10.0)
            self.process.kill()
        return self.wait()

    def failure(self, what: str) -> AssertionError:
        """What went wrong, with all that the process said."""
        output = "".join([*self.stdout, *self.stderr])
        return AssertionError(f"{' '.join(self.argv)}: {what}; it said:\n{output}")


class _Pipe:
    """The lines that can be read from a pipe without waiting."""

    def __init__(self, stream: IO[str]) -> None:
        self.fd = stream.fileno()
        self.ended = False
        self._unfinished = b""  # the beginning of a line
        os.set_blocking(self.fd, False)

    def read(self) -> list[str]:
        """Return all complete lines that there are by now, and at the end what is left."""
        blocks = [self._unfinished]
        while not self.ended:
            try:
                block = os.read(self.fd, PIPE_BYTES)
            except BlockingIOError:
                break
            self.ended = not block
            blocks.append(block)
        lines = b"".join(blocks).splitlines(keepends=True)
        complete = self.ended or not lines or lines[-1].endswith(b"\n")
        self._unfinished = b"" if complete else lines.pop()
        return [re.sub(r"\r\n?", "\n", line.decode()) for line in lines]


def end(pidfds: Iterable[int], signum: signal.Signals, patience: float = 2.0) -> None:
    """Send a signal and wait until the processes have ended, or show no progress any more."""
    with contextlib.ExitStack() as closing, selectors.DefaultSelector() as alive:
        for pidfd in pidfds:
            closing.callback(os.close, pidfd)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signum)
            alive.register(pidfd, selectors.EVENT_READ)
        while alive.get_map() and (ended := alive.select(patience)):
            for key, _ in ended:
                alive.unregister(key.fd)

"""Running a program until it ends: in a session of its own, with a time limit, and with its output.

Knows nothing of events. A program is watched through a pidfd, which takes no thread and works with
every event loop. The program is not reaped before its whole process group has been killed, so that
the number of the group cannot be reused in the meantime.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from forewarn.support.files.task import NotStarted

MAX_OUTPUT = 4_096  # bytes of a program's output that are kept, the last ones
CUT = "… "  # before what is left of an output that is longer
MAX_ANSWER = 65_536  # bytes of the last line of its standard output
END_GRACE = 2.0  # seconds of guard time between SIGTERM and SIGKILL
CHUNK = 65_536  # bytes read in one go
LAST_READS = 16  # from a pipe after the program has ended, since others may still write to it

# The variables that a program inherits. Others are left out, since they may contain secrets.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class ProgramUnusable(ValueError):
    """There is no such program, or it must not be run; the message says which and why."""


class Ended(msgspec.Struct, frozen=True):
    """How a program has ended."""

    status: int  # the exit code, or minus the signal that it died of
    timed_out: bool  # its time was up, and it was killed
    output: str  # the end of its standard output and error, safe to print on a terminal
    answer: bytes  # the last line of its standard output


def find_program(words: Sequence[str], seen_from: Path | None = None) -> tuple[str, ...]:
    """Return a command with the whole path of its program; a name without a slash is searched in
    PATH. Raises ProgramUnusable."""
    if not hasattr(os, "pidfd_open"):
        raise ProgramUnusable("programs can only be watched on Linux 5.3 or newer")
    if not words or not words[0]:
        raise ProgramUnusable("the command is empty; it must begin with the name of a program")
    name = words[0]
    if "/" not in name:
        path = shutil.which(name)
        if path is None:
            raise ProgramUnusable(f"no program '{name}' in PATH; give its full path")
        return (path, *words[1:])
    file = (seen_from or Path()) / name
    if not file.exists():
        raise ProgramUnusable(f"there is no program {file}")
    if not file.is_file() or not os.access(file, os.X_OK):
        raise ProgramUnusable(f"{file} is not executable; run chmod +x {file}")
    return (str(file.absolute()), *words[1:])


def inherited_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


async def run(
    argv: Sequence[str],
    stdin: IO[bytes],
    environment: Mapping[str, str],
    limit: float,
    *,
    leaves_nothing: bool = False,
    on_lines: Callable[[bytearray], None] = lambda _: None,
) -> Ended:
    """Run a program and return when it has ended. Processes that it has left running are not
    touched, or are killed with `leaves_nothing`. `on_lines` is called with the
    end of its standard output whenever that has another line.

    When its time is up, or the caller is cancelled, its whole process group is killed.
    """
    process = _start(argv, stdin, environment)
    with contextlib.ExitStack() as closing:
        closing.callback(_reap, process)
        output = _Output(process, on_lines)
        closing.callback(output.close)
        pidfd = os.pidfd_open(process.pid)
        closing.callback(os.close, pidfd)
        timed_out = False
        try:
            async with asyncio.timeout(limit):
                await _end_of(pidfd)
        except TimeoutError:
            timed_out = True
            await _kill(process, pidfd)
        except asyncio.CancelledError:
            await _kill(process, pidfd)
            raise
        if leaves_nothing:
            _signal(process, signal.SIGKILL)
        output.close()
        return Ended(_reap(process), timed_out, output.text(), output.answer())


def _start(
    argv: Sequence[str], stdin: IO[bytes], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotStarted(f"{argv[0]} could not be started: {error}") from error


async def _end_of(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)


async def _kill(process: subprocess.Popen[bytes], pidfd: int) -> None:
    """End the whole process group: with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(process, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await _end_of(pidfd)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status. A process that not even SIGKILL has ended, because it waits for a
    disk that does not answer, is left to the system."""
    if process.poll() is None:
        _signal(process, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    if process.returncode is None:
        process.returncode = -signal.SIGKILL
    return process.returncode


class _Output:
    """The end of a program's output. All of it is read, so that the program never blocks."""

    def __init__(
        self, process: subprocess.Popen[bytes], on_lines: Callable[[bytearray], None]
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._streams = {process.stdout.fileno(): process.stdout}
        self._streams[process.stderr.fileno()] = process.stderr
        self._stdout = process.stdout.fileno()
        self._tail = bytearray()
        self._answer = bytearray()
        self._cut = False
        self._on_lines = on_lines
        self._loop = asyncio.get_running_loop()
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> bool:
        """Read some output; return whether there was any."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(fd)
            return False
        self._tail += data
        if len(self._tail) > MAX_OUTPUT:
            self._cut = True
            del self._tail[:-MAX_OUTPUT]
        if fd == self._stdout:
            self._answer += data
            del self._answer[:-MAX_ANSWER]
            if b"\n" in data:
                self._on_lines(self._answer)
        return True

    def close(self) -> None:
        """Read what is left, without waiting for the end: a child process that the program has left
        running may keep the pipe open."""
        while self._streams:
            fd, stream = self._streams.popitem()
            for _ in range(LAST_READS):
                if not self._read(fd):
                    break
            self._loop.remove_reader(fd)
            stream.close()

    def answer(self) -> bytes:
        return bytes(self._answer).rstrip().rpartition(b"\n")[2]

    def text(self) -> str:
        text = visible(bytes(self._tail))
        return f"{CUT}{text[-MAX_OUTPUT:]}" if self._cut or len(text) > MAX_OUTPUT else text


def visible(output: bytes) -> str:
    """Return output as text, with control characters other than tabs and line ends escaped."""
    text = output.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )

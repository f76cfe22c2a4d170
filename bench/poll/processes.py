"""Processes on a core of their own: started, looked at, and always stopped."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time  # noqa: TID251 - a measurement
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

SERVER_CORE, LOAD_CORE = 0, 1
FILES = 16_384 + 512  # connections and what else a server has open

_PAGE = resource.getpagesize()


class Failed(Exception):
    """The benchmark cannot go on; the message says why."""


@contextlib.contextmanager
def running(
    argv: Sequence[str],
    *,
    core: int | str,
    log: Path,
    env: Mapping[str, str] | None = None,
    pipes: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone afterwards, whatever happens. What it complains of is in the log."""
    with log.open("w") as complaints:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *argv],
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else complaints,
            stderr=complaints,
            env={**os.environ, **(env or {})},
            text=True,
            start_new_session=True,  # ctrl-C reaches us alone, and we stop it
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu(pid: int) -> float:
    """Seconds of user and system time of a process and its children, exact to the nanosecond.

    From each one's CPU clock, which also counts threads that are over. The clock of another
    process is numbered as clock_getcpuclockid(3) does it.
    """
    return sum(cpu_of(one) for one in tree(pid))


def cpu_of(pid: int) -> float:
    """The same of a process alone."""
    return time.clock_gettime(~pid << 3 | 2)


def memory(pid: int) -> int:
    """Resident bytes of a process and its children. Pages that they share count for each."""
    statm = (Path(f"/proc/{one}/statm").read_text() for one in tree(pid))
    return sum(int(text.split()[1]) for text in statm) * _PAGE


def peak_memory(pid: int) -> int:
    """The most bytes that were resident in a process and its children, each by itself."""
    return sum(_peak(Path(f"/proc/{one}/status").read_text()) for one in tree(pid))


def _peak(status: str) -> int:
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def reset_peak_memory(pid: int) -> None:
    """Count the peak from now on (clear_refs in proc(5))."""
    for one in tree(pid):
        Path(f"/proc/{one}/clear_refs").write_text("5")


def waited(pid: int) -> float:
    """Seconds in which a process or its children could have run, but somebody else did."""
    threads = (path for one in tree(pid) for path in Path(f"/proc/{one}/task").iterdir())
    return sum(int((path / "schedstat").read_text().split()[1]) for path in threads) / 1e9


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def prepare() -> int:
    """Put ourselves beside the load, and allow as many files as we may: how many is answered."""
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        raise Failed("it takes two cores, 0 for the servers and 1 for the load")
    os.sched_setaffinity(0, {LOAD_CORE})
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = hard == resource.RLIM_INFINITY or hard >= FILES
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard if enough else FILES))
    except (ValueError, OSError):  # root may raise it, others not
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    return FILES


def pause(seconds: float) -> None:
    time.sleep(seconds)


def stopwatch() -> float:
    return time.perf_counter()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # the process was started with pipes
    return stream

"""A mark in the environment of the programs that a service has started, by which they are found and
ended when the service may not act any more, even after the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from forewarn.support import guard

VARIABLE = "FOREWARN_SERVICE_PID"
PROC = Path("/proc")
# Seconds for ending all programs. A program that is killed is gone at once, unless the system is
# overloaded or a disk hangs; then whoever waits for the service to end waits no longer.
END_WITHIN = 5.0
LOOK_EVERY = 0.005  # seconds
# In /proc/PID/stat, after the name: the flags of a process, and where its environment ends.
FLAGS, ENVIRONMENT_END = 6, 48
EXITING, KERNEL_THREAD = 0x4, 0x200000  # flags

_pause = threading.Event().wait


def mark(service_pid: int) -> dict[str, str]:
    """Return the variable that marks the programs of a service, which is known by its process
    id."""
    return {VARIABLE: str(service_pid)}


def end_marked(service_pid: int) -> int:
    """Kill every program of this service, with its process group, and wait until all are gone, as
    a program may start others while it is being ended. Return how many processes had its mark.
    Programs that have become another user's cannot be killed."""
    until = guard.monotonic() + END_WITHIN
    ended: set[int] = set()
    of_others: set[int] = set()
    while marked := set(_marked(service_pid, until)) - of_others:
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                of_others.add(pid)
        ended |= marked
        if guard.monotonic() >= until:
            break
        _pause(LOOK_EVERY)
    return len(ended)


def _marked(service_pid: int, until: float) -> Iterator[int]:
    wanted = f"{VARIABLE}={service_pid}".encode()
    own_group = os.getpgid(0)
    for process in PROC.iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # ended, or another user's
                marked = wanted in _environment(process, until).split(b"\0")
                if marked and os.getpgid(int(process.name)) != own_group:
                    yield int(process.name)


def _environment(process: Path, until: float) -> bytes:
    """Return the environment of a process; of one that is just executing a program, as soon as it
    has that of the program."""
    while True:
        environment = (process / "environ").read_bytes()
        if environment or not _executing(process) or guard.monotonic() >= until:
            return environment
        _pause(LOOK_EVERY)


def _executing(process: Path) -> bool:
    """Return whether a process without an environment is about to get one."""
    _, _, after_name = (process / "stat").read_bytes().rpartition(b")")
    fields = after_name.split()
    if int(fields[FLAGS]) & (EXITING | KERNEL_THREAD):
        return False
    return int(fields[ENVIRONMENT_END]) == 0

"""A mark in the environment of the programs that a service has started, by which they are found and
ended when the service may not act any more, even after the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "FOREWARN_SERVICE_PID"
ROUNDS = 20  # a program may start others while it is being ended


def mark(service_pid: int) -> dict[str, str]:
    """Return the variable that marks the programs of a service, which is known by its process
    id."""
    return {VARIABLE: str(service_pid)}


def end_marked(service_pid: int) -> int:
    """Kill every program of this service, with its process group; return how many processes had its
    mark. Programs that have become another user's cannot be killed."""
    ended: set[int] = set()
    for _ in range(ROUNDS):
        marked = set(_marked(service_pid))
        if not marked:
            break
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        ended |= marked
    return len(ended)


def _marked(service_pid: int) -> Iterator[int]:
    wanted = f"{VARIABLE}={service_pid}".encode()
    own_group = os.getpgid(0)
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # ended, or another user's
                marked = wanted in (process / "environ").read_bytes().split(b"\0")
                if marked and os.getpgid(int(process.name)) != own_group:
                    yield int(process.name)

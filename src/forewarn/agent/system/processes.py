"""Processes of this machine, read from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    pid: int
    alive: bool  # neither dead nor a zombie
    started: str  # in clock ticks since the machine was booted

    def has_variable(self, name: str, value: str) -> bool:
        """Whether its environment had this variable when its program was started."""
        try:
            environment = (PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return False
        return f"{name}={value}".encode() in environment.split(b"\0")


def in_group(group: int) -> list[Process]:
    """Return the members of a process group that leads its own session. Raises OSError if there is
    no /proc."""
    with contextlib.suppress(PermissionError):  # some may have become another user, as by sudo
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return []
    members = []
    for entry in PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                words = (entry / "stat").read_text("latin-1").rpartition(")")[2].split()
                if words[2] == words[3] == str(group):
                    members.append(Process(int(entry.name), words[0] not in "ZX", words[19]))
    return members

"""Ports for what has to be told a port, or has to find the same one again after a restart."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

FIRST = 20_000
# The system gives those above to clients, whoever was told one of them.
LAST = 32_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_reserved: list[socket.socket] = []


def free_port(*offsets: int) -> int:
    """Return a port that is free, as are those at these offsets from it. Until this process ends,
    no other one on this machine that asks here gets any of them."""
    last = min(LAST, int(_RANGE.read_text().split()[0])) if _RANGE.exists() else LAST
    for port in range(FIRST + os.getpid() % 997, last):
        with contextlib.ExitStack() as closing, contextlib.suppress(OSError):
            reservations = [_reserve(port + offset, closing) for offset in (0, *offsets)]
            for offset in (0, *offsets):
                closing.enter_context(socket.create_server(("127.0.0.1", port + offset)))
            for reservation in filter(None, reservations):
                _reserved.append(reservation.dup())
            return port
    raise RuntimeError(f"no free port from {FIRST} to {last}")


def _reserve(port: int, closing: contextlib.ExitStack) -> socket.socket | None:
    """Take a name that one process on this machine can have, and that is free when it ends. Raises
    OSError if somebody has it."""
    if not hasattr(socket, "AF_UNIX"):  # Windows
        return None
    name = closing.enter_context(socket.socket(socket.AF_UNIX))
    name.bind(f"\0forewarn tests port {port}")
    return name

"""What this system has: the parts of Linux that some commands need, users, and syncing to disk.

Everything that a developer uses (`forewarn dev`, the test kit, the client, scenarios, `watch`) runs
on macOS and Windows as well. What needs Linux asks here, and says so.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ON_LINUX = sys.platform == "linux" and hasattr(os, "pidfd_open")


def linux_problem(what: str, instead: str) -> str:
    """Return a sentence that says that `what` needs Linux and what to use instead, or "" there."""
    if ON_LINUX:
        return ""
    system = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
    return f"{what} needs Linux 5.3 or newer, and this is {system}; {instead}"


def user_id() -> int | None:
    """Return the effective user id; None where users have no numbers (Windows)."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def sync(path: Path) -> None:
    """Sync a file or a directory to disk. (Windows cannot open a directory, and keeps its own
    order; nor can it sync a file that is open for reading only.)"""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def machine_id() -> str:
    """Return the id of this machine, which no other one has; empty if it has none."""
    return _read_id("/etc/machine-id")


def boot_id() -> str:
    """Return the id of the machine's current boot, which a clone does not have either; empty where
    the system has none."""
    return _read_id("/proc/sys/kernel/random/boot_id")


def _read_id(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""

"""Finds the service that runs on this machine: each service writes a small file, a note with its
addresses, which exists while it runs.

Notes are in a directory that only their owner can write to: the user's runtime directory or, for a
system service, /run/forewarn, which all users can read. A note whose process has ended is removed
by the next reader that is allowed to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from forewarn.support.system import user_id

SYSTEM = Path("/run/forewarn")  # RuntimeDirectory= of the unit; only root can create it

_SYNCHRONIZE = 0x100000  # the right to wait for the end of a process, on Windows
_WAIT_TIMEOUT = 0x102  # it has not ended
_ACCESS_DENIED = 5  # it runs, as another user

_NAME = re.compile(r"([1-9]\d{0,8})\.json", re.ASCII)  # of a note: the process id


class Note(msgspec.Struct, frozen=True):
    pid: int
    metadata: str
    control: str
    network: str = ""  # its network namespace, on Linux


class NotFound(Exception):
    """No service was found, or several; the message says what to do."""


@contextlib.contextmanager
def note(metadata: str, control: str) -> Iterator[None]:
    """Keep a note about this process while the context is entered. If it cannot be written, the
    service runs without it."""
    pid = os.getpid()
    path = None
    try:
        path = _own_directory() / f"{pid}.json"
        path.write_bytes(msgspec.json.encode(Note(pid, metadata, control, _network())))
        if path.parent == SYSTEM:
            path.chmod(0o644)
    except (OSError, NotFound):
        path = None
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def running() -> list[Note]:
    """Return the notes of the services that run on this machine."""
    return list(_notes())


def find() -> str:
    """Return the URL of the control API, if exactly one service runs on this machine. Services in
    this network namespace come first: the same URL is another service in another one."""
    network, notes = _network(), running()
    here = [note for note in notes if note.network in ("", network)]
    notes = here or notes
    if not notes:
        raise NotFound(
            "no service runs on this machine; start one with 'forewarn dev',"
            " or pass --url or set FOREWARN_URL"
        )
    if len(notes) > 1:
        services = ", ".join(f"{note.control} (process {note.pid})" for note in notes)
        raise NotFound(
            f"several services run on this machine; choose one with --url or FOREWARN_URL:"
            f" {services}"
            if here
            else "several services run in other network namespaces; run the command in that of one"
            f" (nsenter --net --target PID): {services}"
        )
    return notes[0].control


def _network() -> str:
    """Return the name of this network namespace; empty where there are none."""
    try:
        return str(Path("/proc/self/ns/net").readlink())
    except OSError:
        return ""


def _notes() -> Iterator[Note]:
    paths = sorted(SYSTEM.glob("*.json"))
    with contextlib.suppress(OSError, NotFound):
        paths += sorted(_directory().glob("*.json"))
    for path in paths:
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue  # not a note
        try:
            if _runs(int(name[1]), path.lstat().st_uid):
                yield msgspec.json.decode(path.read_bytes(), type=Note)
                continue
        except (OSError, msgspec.MsgspecError):
            continue  # being written, or not a note
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _runs(pid: int, owner: int) -> bool:
    """Return whether the process of a note runs. Raises PermissionError if its pid now belongs to
    a process of another user."""
    if sys.platform == "win32":
        return _runs_on_windows(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user runs
        if owner == user_id():
            raise
    return True


def _runs_on_windows(pid: int) -> bool:
    """Return whether a process runs. (`os.kill` would send it Ctrl-C.)"""
    import ctypes

    kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    process = kernel.OpenProcess(_SYNCHRONIZE, False, pid)
    if not process:
        return bool(ctypes.get_last_error() == _ACCESS_DENIED)  # type: ignore[attr-defined]
    try:
        return bool(kernel.WaitForSingleObject(process, 0) == _WAIT_TIMEOUT)
    finally:
        kernel.CloseHandle(process)


def _own_directory() -> Path:
    """Return the directory in which this process writes its note."""
    if os.environ.get("RUNTIME_DIRECTORY") == str(SYSTEM):
        return SYSTEM
    return _directory()


def _directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime else Path(tempfile.gettempdir())
    user = user_id()
    # On Windows each user has a directory for temporary files.
    path = base / ("forewarn" if runtime or user is None else f"forewarn-{user}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotFound(f"{path} is not a directory; remove it")
    if user is None:
        return path
    if status.st_uid != user:
        raise NotFound(f"{path} belongs to another user")
    if status.st_mode & 0o022:
        raise NotFound(f"{path} can be written to by other users; run chmod 700 {path}")
    return path

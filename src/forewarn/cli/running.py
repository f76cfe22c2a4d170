"""How a command finds the service that runs on this machine: each leaves a note while it runs.

The notes lie in a directory that only their owner can write to. A note whose process is gone
is removed by whoever finds it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Note(msgspec.Struct, frozen=True):
    pid: int
    metadata: str
    control: str


class NotFound(Exception):
    """No service, or too many; the message says what to do."""


@contextlib.contextmanager
def note(metadata: str, control: str) -> Iterator[None]:
    """Be found while this lasts. A machine that allows no note is no reason not to serve."""
    pid = os.getpid()
    path = None
    try:
        path = _directory() / f"{pid}.json"
        path.write_bytes(msgspec.json.encode(Note(pid, metadata, control)))
    except (OSError, NotFound):
        path = None
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


def find() -> str:
    """The control address of the one service that runs here."""
    notes = list(_notes())
    if not notes:
        raise NotFound(
            "no service runs on this machine; start one with 'forewarn dev',"
            " or name one with --url or FOREWARN_URL"
        )
    if len(notes) > 1:
        found = ", ".join(f"{n.control} (process {n.pid})" for n in notes)
        raise NotFound(f"several services run here; choose one with --url or FOREWARN_URL: {found}")
    return notes[0].control


def _notes() -> Iterator[Note]:
    try:
        paths = sorted(_directory().glob("*.json"))
    except (OSError, NotFound):
        return
    for path in paths:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Note)
            os.kill(found.pid, 0)
        except PermissionError:
            continue
        except (OSError, msgspec.MsgspecError):
            path.unlink(missing_ok=True)
            continue
        yield found


def _directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime else Path(tempfile.gettempdir())
    path = base / ("forewarn" if runtime else f"forewarn-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise NotFound(f"{path} belongs to somebody else")
    return path

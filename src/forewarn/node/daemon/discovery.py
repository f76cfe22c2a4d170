"""How a command finds the service that runs on this machine: each leaves a note while it runs.

The notes lie in a directory that only their owner can write to: that of the user, or, for a
service of the system, the one that its manager made for it and that everybody may read. A note
whose process is gone is removed by whoever finds it and may.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

SYSTEM = Path("/run/forewarn")  # RuntimeDirectory= of the unit; only root can make it

_NAME = re.compile(r"([1-9]\d{0,8})\.json", re.ASCII)  # a note's: the number of its process


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
        path = _own_directory() / f"{pid}.json"
        path.write_bytes(msgspec.json.encode(Note(pid, metadata, control)))
        if path.parent == SYSTEM:
            path.chmod(0o644)
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
    paths = sorted(SYSTEM.glob("*.json"))
    with contextlib.suppress(OSError, NotFound):
        paths += sorted(_directory().glob("*.json"))
    for path in paths:
        named = _NAME.fullmatch(path.name)
        if named is None:
            continue  # not of ours, whatever it is
        try:
            if _runs(int(named[1]), path.lstat().st_uid):
                yield msgspec.json.decode(path.read_bytes(), type=Note)
                continue
        except (OSError, msgspec.MsgspecError):
            continue  # being written, or nothing that a service leaves
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _runs(pid: int, owner: int) -> bool:
    """A process of somebody else may not be asked, but it is there if it is whose note it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        if owner == os.getuid():
            raise  # ours was another: the number has been given away
    return True


def _own_directory() -> Path:
    """Where a service leaves its note."""
    if os.environ.get("RUNTIME_DIRECTORY") == str(SYSTEM):
        return SYSTEM
    return _directory()


def _directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime else Path(tempfile.gettempdir())
    path = base / ("forewarn" if runtime else f"forewarn-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotFound(f"{path} is no directory, and may lead anywhere; remove it")
    if found.st_uid != os.getuid():
        raise NotFound(f"{path} belongs to somebody else")
    if found.st_mode & 0o022:
        raise NotFound(f"{path} can be written to by others; say chmod 700 {path}")
    return path

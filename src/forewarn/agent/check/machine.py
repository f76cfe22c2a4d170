"""What may be wrong on this machine with a configuration that is right in itself: directories that
cannot be written, programs that are not there, addresses that are taken. Only looks.

What is looked at is looked at as whoever runs the check: `sudo -u forewarn-agent forewarn agent
check` is what the agent will find.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from forewarn.agent.check.finding import Finding, note, ok, problem
from forewarn.agent.config.address import ListenAddress, listens
from forewarn.agent.config.model import Config
from forewarn.agent.state import durable, locking
from forewarn.agent.state.cases import Case

FORGETFUL = ("tmpfs", "ramfs")  # file systems that are empty after a reboot
MOUNTS = Path("/proc/self/mountinfo")

POSIX = os.name == "posix"


def file(path: Path) -> Iterator[Finding]:
    if _writable_by_others(path):
        yield problem(
            "configuration",
            f"{path} can be written by others, and names programs that are run: chmod o-w {path}",
        )


def user() -> Iterator[Finding]:
    if not POSIX:
        return
    if os.geteuid() == 0:
        yield note(
            "user",
            "root: every hook runs with all rights; the unit that comes along runs the agent as"
            " forewarn-agent, and a drop-in gives hooks what they need",
        )
    else:
        yield ok("user", f"{_name(os.geteuid())}, who is not root")


def state(directory: Path) -> Iterator[Finding]:
    if wrong := _unwritable(directory):
        yield problem("state", f"{wrong}; what was prepared could not be undone after a crash")
        return
    if directory.exists() and (wrong := durable.open_to(directory)):
        owner = _name(directory.stat().st_uid)
        if os.geteuid() == 0 and owner != _name(0):
            yield note("state", f"{directory} is {owner}'s: sudo -u {owner} forewarn agent check")
        else:
            yield problem("state", wrong)
        return
    yield ok("state", f"{directory} can be written")
    if directory.exists() and POSIX and directory.stat().st_mode & 0o077:
        yield note("state", f"{directory} can be read by others, and what hooks say is in it")
    if (kind := file_system(directory)) in FORGETFUL:
        yield note(
            "state",
            f"{directory} is on {kind}, which is empty after a reboot: what was prepared before it"
            " will not be undone after it",
        )
    if _held(directory):
        yield note("state", "an agent works with it at the moment")
    for room in _given_up(directory):
        event = room.parent.name.rpartition(".")[0]
        yield problem(
            "state",
            f"the undo of hook {room.name} was given up for event {event}; undo by hand what it"
            f" prepared, then remove {room}",
        )


def _given_up(directory: Path) -> list[Path]:
    """Return the directories of hooks that are left although their event is over: a successful undo
    removes them."""
    found = []
    for case in sorted(directory.glob("cases/*/case")):
        try:
            closed = msgspec.json.decode(case.read_bytes(), type=Case).closed
        except (OSError, msgspec.DecodeError):
            continue
        if closed is not None:
            found += sorted(directory.glob(f"hooks/{case.parent.name}/*"))
    return found


def shared(directory: Path) -> Iterator[Finding]:
    if not _looked_at(directory.is_dir):
        yield problem(
            "shared", f"{directory} is no directory that can be looked into; mount it, or make it"
        )
    elif wrong := _unwritable(directory):
        yield problem("shared", f"{wrong}; this machine could not say that it is ready")
    else:
        yield ok("shared", f"{directory} can be written")
        if (kind := file_system(directory)) in FORGETFUL:
            yield note("shared", f"{directory} is on {kind}, which no other machine can see")


def listening(config: Config) -> Iterator[Finding]:
    if not config.listen:
        yield note("listen", "nowhere: there is no health endpoint, and there are no metrics")
        return
    where = listens(config.listen, anywhere=config.listen_anywhere)
    if wrong := _taken(where):
        if _held(config.state):
            yield ok("listen", f"{where}, by the agent that runs")
        else:
            yield problem("listen", wrong)
    else:
        yield ok("listen", f"{where} is free")
    if not where.local:
        yield note("listen", f"{where} can be asked from beyond this machine, by anybody")


def program(name: str) -> list[str]:
    """What keeps this user from running it."""
    found = shutil.which(name)
    if found is None:
        path = Path(name)
        if not path.is_absolute():
            return [f"there is no program {name} on the agent's PATH; write where it is"]
        if not _looked_at(path.exists, unseen=True):
            return [f"there is no {path}"]
        return [f"{path} cannot be run by {_name(os.geteuid()) if POSIX else 'this user'}"]
    if _writable_by_others(Path(found)):
        return [f"{found} can be changed by others: chmod o-w {found}"]
    return []


def file_system(path: Path) -> str:
    """Of which kind the one is that this lies on; empty where nobody says."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
        place = _existing(path).resolve()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        where = before.split()[4].encode("latin-1", "replace").decode("unicode_escape")
        if place.is_relative_to(where) and len(where) >= len(best):
            best, kind = where, after.split()[0]
    return kind


def _held(state: Path) -> bool:
    """Whether an agent works with it; who may not look does not know."""
    return _looked_at(lambda: (state / "lock").exists() and locking.held(state / "lock"))


def _existing(path: Path) -> Path:
    """It, or the first above it that is there, as far as one may look."""
    return path if _looked_at(path.exists) else _existing(path.parent)


def _looked_at(look: Callable[[], bool], *, unseen: bool = False) -> bool:
    """What it says; `unseen` if one may not look."""
    try:
        return look()
    except OSError:
        return unseen


def _unwritable(directory: Path) -> str:
    """Why nothing can be written there, tried for real; where it is still to be made, in the
    directory in which it would be."""
    place = _existing(directory)
    try:
        with tempfile.TemporaryFile(dir=place) as tried:
            tried.write(b"tried")
    except OSError as error:
        missing = "" if place == directory else f"{directory} is not there, and "
        return f"{missing}{place} cannot be written: {error.strerror}"
    return ""


def _taken(where: ListenAddress) -> str:
    if where.path:
        return _no_socket(Path(where.path))
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            if POSIX:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((where.host, where.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return f"{where} is taken by somebody else (ss -ltnp); choose another ([agent] listen)"
        return f"{where}: {error.strerror}"
    return ""


def _no_socket(path: Path) -> str:
    if not _looked_at(path.parent.is_dir):
        return f"{path.parent} is no directory; make it, or let systemd (RuntimeDirectory=)"
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        return f"{path} is there, and is no socket"
    return _unwritable(path.parent)


def _writable_by_others(path: Path) -> bool:
    if not POSIX:
        return False
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IWOTH)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

"""Checks whether a valid configuration works on this machine: directories that are not writable,
programs that do not exist, addresses that are in use. Changes nothing.

The checks are made as the user who runs them: `sudo -u forewarn-agent forewarn agent check` finds
what the agent will find.
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

from forewarn.agent.config.address import ListenAddress, parse_listen
from forewarn.agent.config.model import Config
from forewarn.agent.state.cases import Case
from forewarn.agent.system import durable
from forewarn.support.finding import Finding, note, ok, problem

VOLATILE = ("tmpfs", "ramfs")  # file systems that are empty after a reboot
MOUNTS = Path("/proc/self/mountinfo")

POSIX = os.name == "posix"


def check_file(path: Path) -> Iterator[Finding]:
    if _writable_by_others(path):
        yield problem(
            "configuration",
            f"{path} is writable by others, and names programs that are run: chmod o-w {path}",
        )


def check_user() -> Iterator[Finding]:
    if not POSIX:
        return
    if os.geteuid() == 0:
        yield note(
            "user",
            "root: every hook runs with all privileges; the packaged unit runs the agent as"
            " forewarn-agent, and a drop-in gives hooks the privileges they need",
        )
    else:
        yield ok("user", f"{_user_name(os.geteuid())}, not root")


def check_state(directory: Path) -> Iterator[Finding]:
    if reason := _write_problem(directory):
        yield problem("state", f"{reason}; what was prepared could not be undone after a crash")
        return
    if directory.exists() and (insecure := durable.permission_problem(directory)):
        owner = _user_name(directory.stat().st_uid)
        if os.geteuid() == 0 and owner != _user_name(0):
            run = f"sudo -u {owner} forewarn agent check"
            yield note("state", f"{directory} belongs to {owner}; run {run}")
        else:
            yield problem("state", insecure)
        return
    yield ok("state", f"{directory} is writable")
    if directory.exists() and POSIX and directory.stat().st_mode & 0o077:
        yield note("state", f"{directory} is readable by others, and contains the output of hooks")
    if (kind := file_system(directory)) in VOLATILE:
        yield note(
            "state",
            f"{directory} is on {kind}, which is empty after a reboot: what was prepared before the"
            " reboot will not be undone after it",
        )
    if _is_locked(directory):
        yield note("state", "an agent is using it at the moment")
    for left in _given_up(directory):
        event = left.parent.name.rpartition(".")[0]
        yield problem(
            "state",
            f"the undo of hook {left.name} was given up for event {event}; undo by hand what it"
            f" prepared, then remove {left}",
        )


def _given_up(directory: Path) -> list[Path]:
    """Return the directories of hooks that are left although their event is over: a successful undo
    removes them."""
    directories = []
    for case in sorted(directory.glob("cases/*/case")):
        try:
            closed = msgspec.json.decode(case.read_bytes(), type=Case).closed
        except (OSError, msgspec.DecodeError):
            continue
        if closed is not None:
            directories += sorted(directory.glob(f"hooks/{case.parent.name}/*"))
    return directories


def check_shared(directory: Path) -> Iterator[Finding]:
    if not _test(directory.is_dir):
        yield problem("shared", f"{directory} is not an accessible directory; mount or create it")
    elif reason := _write_problem(directory):
        yield problem("shared", f"{reason}; this machine could not report that it is ready")
    else:
        yield ok("shared", f"{directory} is writable")
        if (kind := file_system(directory)) in VOLATILE:
            yield note("shared", f"{directory} is on {kind}, which no other machine can see")


def check_listen(config: Config) -> Iterator[Finding]:
    if not config.listen:
        yield note("listen", "disabled: there is no health endpoint, and there are no metrics")
        return
    address = parse_listen(config.listen, anywhere=config.listen_anywhere)
    if reason := _listen_problem(address):
        if _is_locked(config.state):
            yield ok("listen", f"{address}, used by the running agent")
        else:
            yield problem("listen", reason)
    else:
        yield ok("listen", f"{address} is free")
    if not address.local:
        yield note("listen", f"{address} is open to anyone who can reach it from other machines")


def program_problems(name: str) -> list[str]:
    """Return what keeps this user from running a program, or makes that unsafe."""
    path = shutil.which(name)
    if path is None:
        given = Path(name)
        if not given.is_absolute():
            return [f"there is no program {name} on the agent's PATH; write its absolute path"]
        if not _test(given.exists, default=True):
            return [f"{given} does not exist"]
        return [f"{given} cannot be run by {_user_name(os.geteuid()) if POSIX else 'this user'}"]
    if _writable_by_others(Path(path)):
        return [f"{path} is writable by others: chmod o-w {path}"]
    return []


def file_system(path: Path) -> str:
    """Return the type of the file system of a path; empty where it is unknown."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
        resolved = _existing(path).resolve()
    except OSError:
        return ""
    longest, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = before.split()[4].encode("latin-1", "replace").decode("unicode_escape")
        if resolved.is_relative_to(mount) and len(mount) >= len(longest):
            longest, kind = mount, after.split()[0]
    return kind


def _is_locked(state: Path) -> bool:
    """Whether an agent uses the state directory; False if we may not look."""
    return _test(lambda: (state / "lock").exists() and durable.is_locked(state / "lock"))


def _existing(path: Path) -> Path:
    """Return the path, or its first parent that exists, as far as we may look."""
    return path if _test(path.exists) else _existing(path.parent)


def _test(test: Callable[[], bool], *, default: bool = False) -> bool:
    """Return what the test returns; `default` if we may not look."""
    try:
        return test()
    except OSError:
        return default


def _write_problem(directory: Path) -> str:
    """Return why nothing can be written there, by writing a file. For a directory that does not
    exist yet, its first existing parent is tested."""
    existing = _existing(directory)
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"probe")
    except OSError as error:
        missing = "" if existing == directory else f"{directory} does not exist, and "
        return f"{missing}{existing} is not writable: {error.strerror}"
    return ""


def _listen_problem(address: ListenAddress) -> str:
    if address.path:
        return _socket_problem(Path(address.path))
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if POSIX:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"{address} is in use by another program (ss -ltnp shows which); choose another"
                " address ([agent] listen)"
            )
        return f"{address}: {error.strerror}"
    return ""


def _socket_problem(path: Path) -> str:
    if not _test(path.parent.is_dir):
        return (
            f"{path.parent} is not a directory; create it, or have systemd do so"
            " (RuntimeDirectory=)"
        )
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        return f"{path} exists and is not a socket"
    return _write_problem(path.parent)


def _writable_by_others(path: Path) -> bool:
    if not POSIX:
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IWOTH)


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"

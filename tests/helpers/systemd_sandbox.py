"""Runs a program as a systemd unit says, where there is no systemd to do it: the same system calls,
no writing to what may not be written, no privilege, sockets handed over. Needs root.

    python confined.py UNIT DIRECTORY SOCKETS PROGRAM...

DIRECTORY is the only place that can be written to. SOCKETS are names with addresses,
`metadata=127.0.0.1:80`, in the order in which they are handed over. A system call that the unit
does not allow is the program's end (SIGSYS), where systemd would only refuse it: what has to be
seen is that the service does not even try. For `MemoryDenyWriteExecute=` the same.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EAFNOSUPPORT = 97
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, LAST_CAPABILITY = 38, 24, 63
MASKED_EQUAL, EQUAL = 7, 4
PROT_WRITE, PROT_EXEC = 2, 4
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000


class Compared(ctypes.Structure):
    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    ]


def settings_of(unit: str) -> dict[str, list[str]]:
    """Everything that the unit says, also what it says several times."""
    found: dict[str, list[str]] = {}
    for line in Path(unit).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def sets() -> dict[str, list[str]]:
    """The sets of system calls that systemd knows by a name."""
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, list[str]] = {}
    name = ""
    for line in listed.splitlines():
        if line.startswith("@"):
            name = line.strip()
            found[name] = []
        elif line.startswith("    ") and name and not line.strip().startswith("#"):
            found[name].append(line.strip())
        elif not line.strip():
            name = ""
    return found


def calls(words: list[str], known: dict[str, list[str]]) -> Iterator[str]:
    for word in words:
        if word.startswith("@"):
            yield from calls(known[word], known)
        else:
            yield word


def allowed(unit: dict[str, list[str]]) -> set[str]:
    known = sets()
    found = set(calls(["@default"], known))
    for line in unit["SystemCallFilter"]:
        if line.startswith("~"):
            found -= set(calls(line[1:].split(), known)) - set(calls(["@default"], known))
        else:
            found |= set(calls(line.split(), known))
    return found


class Filters:
    """libseccomp, as far as it is needed."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL("libseccomp.so.2")
        self._lib.seccomp_init.restype = ctypes.c_void_p
        self._lib.seccomp_init.argtypes = [ctypes.c_uint32]
        self._lib.seccomp_load.argtypes = [ctypes.c_void_p]
        self._lib.seccomp_rule_add_array.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
        ]

    def start(self, otherwise: int) -> int:
        made: int = self._lib.seccomp_init(otherwise)
        assert made
        return made

    def rule(self, filter: int, action: int, call: str, *compared: Compared) -> None:
        number = self._lib.seccomp_syscall_resolve_name(call.encode())
        if number < 0:  # of another architecture
            return
        array = (Compared * max(1, len(compared)))(*compared)
        done = self._lib.seccomp_rule_add_array(filter, action, number, len(compared), array)
        assert done == 0, (call, done)

    def load(self, filter: int) -> None:
        assert self._lib.seccomp_load(filter) == 0


def confine(unit: dict[str, list[str]]) -> None:
    filters = Filters()
    if unit["MemoryDenyWriteExecute"] == ["yes"]:
        memory = filters.start(ALLOW)
        both = PROT_WRITE | PROT_EXEC
        filters.rule(memory, KILL, "mmap", Compared(2, MASKED_EQUAL, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            filters.rule(memory, KILL, call, Compared(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC))
        filters.load(memory)
    families = filters.start(ALLOW)
    kept = {getattr(socket, name) for name in unit["RestrictAddressFamilies"][0].split()}
    for family in set(range(1, 46)) - kept:
        filters.rule(families, ERRNO | EAFNOSUPPORT, "socket", Compared(0, EQUAL, family, 0))
    filters.load(families)
    every = filters.start(KILL)
    for call in sorted(allowed(unit)):
        filters.rule(every, ALLOW, call)
    filters.load(every)


def mounted(directory: str) -> None:
    """Read-only but for one place, in a namespace of our own."""
    unshare(NEW_MOUNTS)
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    run("mount", "--make-rprivate", "/")
    run("mount", "--bind", directory, directory)
    for place in mounts:
        if not place.startswith(("/proc", "/sys", "/dev")) and place != directory:
            subprocess.run(
                ["mount", "-o", "remount,bind,ro", place.encode().decode("unicode_escape")],
                stderr=subprocess.DEVNULL,
                check=False,
            )
    run("mount", "-o", "remount,bind,rw", directory)
    os.chdir(directory)


def unshare(what: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(what) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def become_somebody() -> None:
    """A user that is not root, as far as the program can see; what it may read is what we may, so
    that the test does not depend on where the project lies."""
    unshare(NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text("1000 0 1")
    Path("/proc/self/gid_map").write_text("1000 0 1")
    assert os.geteuid() == 1000


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def hand_over(sockets: str) -> None:
    names, made = [], []
    for word in sockets.split():
        name, _, where = word.partition("=")
        host, _, port = where.rpartition(":")
        listener = socket.create_server((host, int(port)), backlog=128)
        made.append(fcntl.fcntl(listener.detach(), fcntl.F_DUPFD, 100))
        names.append(name)
    for number, fd in enumerate(made):
        os.dup2(fd, 3 + number)
        os.close(fd)
    os.environ["LISTEN_FDS"] = str(len(names))
    os.environ["LISTEN_FDNAMES"] = ":".join(names)
    os.environ["LISTEN_PID"] = str(os.getpid())


def give_up_privileges() -> None:
    """All capabilities, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(LAST_CAPABILITY):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    assert libc.capset(header, nothing) == 0
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0


def main() -> None:
    unit, directory, sockets, *argv = sys.argv[1:]
    settings = settings_of(unit)
    mounted(directory)
    os.closerange(3, 64)
    hand_over(sockets)
    os.environ["RUNTIME_DIRECTORY"] = directory
    become_somebody()
    give_up_privileges()
    confine(settings)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main()

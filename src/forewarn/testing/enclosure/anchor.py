"""The anchor: a process that does nothing but be in the namespaces, so that they are there.

It has no capability and can therefore be looked at by whoever its user is; that is how programs
like pasta find the way in. What has to be done inside is done by processes that come and go. Its
last act, when the keeper is gone, is to end what was entrusted to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable

import msgspec

from forewarn.testing.enclosure import kernel
from forewarn.testing.enclosure.relay import BACKLOG

METADATA_ADDRESS = "169.254.169.254"
METADATA_PORT = 80

Place = tuple[str, int]


class NoNamespace(Exception):
    """The kernel would not make it."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Anchor(msgspec.Struct, frozen=True):
    pid: int
    user: int | None  # the namespaces, as open files; no user namespace: only root could make it
    net: int
    joins_user: bool  # whether a program has to be in the user namespace too
    line: int  # open for as long as the keeper lives; the anchor is at the other end

    @property
    def inode(self) -> int:
        """By which the network namespace is known."""
        return os.fstat(self.net).st_ino

    def entrust(self, pid: int) -> None:
        """This process is to end when we do, also if we are killed. (That it be told so by the
        kernel does not last: entering a user namespace, as pasta does, makes it forget.)"""
        held = os.pidfd_open(pid)
        with socket.socket(fileno=os.dup(self.line)) as line:
            socket.send_fds(line, [b"."], [held])
        os.close(held)


def drop() -> Anchor:
    """Make the namespaces. Root's programs stay in root's user namespace, with all its rights;
    anybody else's need to be in the new one to be let in, as the same user with none."""
    privileged = kernel.has_capability(kernel.CAP_SYS_ADMIN)
    try:
        return _drop(kernel.NEW_USER | kernel.NEW_NET, joins_user=not privileged)
    except NoNamespace:
        if not privileged:
            raise
        return _drop(kernel.NEW_NET, joins_user=False)


def _drop(kinds: int, *, joins_user: bool) -> Anchor:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_anchor(kinds, theirs)
    theirs.close()
    said, fds, _, _ = socket.recv_fds(ours, 64, 2)
    if not fds:
        os.waitpid(pid, 0)
        number = int(said or b"0")
        raise NoNamespace(OSError(number, os.strerror(number)))
    user = fds[1] if len(fds) > 1 else None
    return Anchor(pid, user, fds[0], joins_user, ours.detach())


def _be_anchor(kinds: int, keeper: socket.socket) -> None:
    try:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kinds)
        paths = ["/proc/self/ns/net"]
        if kinds & kernel.NEW_USER:
            kernel.be_oneself(uid, gid)
            paths.append("/proc/self/ns/user")
        kernel.loopback_up(METADATA_ADDRESS)
        socket.send_fds(keeper, [b"there"], [os.open(path, os.O_RDONLY) for path in paths])
        kernel.drop_capabilities()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        _outlive(keeper)
    except OSError as error:
        with contextlib.suppress(OSError):
            keeper.send(str(error.errno).encode())
    finally:
        os._exit(0)


def _outlive(keeper: socket.socket) -> None:
    """Wait until the keeper is gone, and end what it has entrusted to us."""
    entrusted: list[int] = []
    while True:
        said, fds, _, _ = socket.recv_fds(keeper, 1, 1)
        if not said:
            break
        entrusted += fds
    for pidfd in entrusted:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def opened_inside(anchor: Anchor, wanted: list[tuple[int, Place]]) -> list[socket.socket | None]:
    """Sockets that are bound inside the namespace and used here: listening ones for TCP.
    None for what cannot be had there."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _do_inside(anchor, lambda: _hand_out(theirs, wanted))
    theirs.close()
    found: list[socket.socket | None] = []
    with ours:
        for _ in wanted:
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            found.append(socket.socket(fileno=fds[0]) if fds else None)
            ours.send(b".")
    os.waitpid(pid, 0)
    return found


def _hand_out(to: socket.socket, wanted: list[tuple[int, Place]]) -> None:
    for kind, place in wanted:
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        with socket.socket(family, kind) as made:
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind(place)
                if kind == socket.SOCK_STREAM:
                    made.listen(BACKLOG)
                socket.send_fds(to, [b"."], [made.fileno()])
            except OSError:
                to.send(b".")
        to.recv(1)  # one at a time, so that no two come together


def _do_inside(anchor: Anchor, work: Callable[[], None]) -> None:
    try:
        if anchor.user is not None and anchor.joins_user:
            kernel.setns(anchor.user, kernel.NEW_USER)
        kernel.setns(anchor.net, kernel.NEW_NET)
        work()
    finally:
        os._exit(0)

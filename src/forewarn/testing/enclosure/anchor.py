"""The anchor: a process that keeps the namespaces alive by staying in them.

It has no capabilities, so that processes of the same user can open its /proc files; that is how
programs like pasta find the namespaces. Work inside is done by short-lived processes. When the
keeper has ended, the anchor kills the processes that were registered with it.
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

Address = tuple[str, int]


class NoNamespace(Exception):
    """The kernel refused to create a namespace."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Anchor(msgspec.Struct, frozen=True):
    """A running anchor, seen from the keeper."""

    pid: int
    user: int | None  # the user namespace, as an open file; None if root made none
    net: int  # the network namespace, as an open file
    joins_user: bool  # whether programs have to enter the user namespace, too
    keeper_socket: int  # connected to the anchor, and open as long as the keeper lives

    @property
    def inode(self) -> int:
        """The inode number that identifies the network namespace."""
        return os.fstat(self.net).st_ino

    def kill_with_us(self, pid: int) -> None:
        """Have a process killed when the keeper ends, even if the keeper is killed itself.

        PR_SET_PDEATHSIG would not do: it is reset when a process enters a user namespace, as pasta
        does.
        """
        pidfd = os.pidfd_open(pid)
        with socket.socket(fileno=os.dup(self.keeper_socket)) as connection:
            socket.send_fds(connection, [b"."], [pidfd])
        os.close(pidfd)


def create_anchor() -> Anchor:
    """Create the namespaces and their anchor.

    Root's programs stay in root's user namespace and keep their capabilities. Programs of other
    users have to enter the new user namespace first, in which they are the same user without any.
    """
    privileged = kernel.has_capability(kernel.CAP_SYS_ADMIN)
    try:
        return _create_anchor(kernel.NEW_USER | kernel.NEW_NET, joins_user=not privileged)
    except NoNamespace:
        if not privileged:
            raise
        return _create_anchor(kernel.NEW_NET, joins_user=False)


def _create_anchor(kinds: int, *, joins_user: bool) -> Anchor:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_anchor(kinds, theirs)
    theirs.close()
    reply, fds, _, _ = socket.recv_fds(ours, 64, 2)
    if not fds:
        os.waitpid(pid, 0)
        number = int(reply or b"0")
        raise NoNamespace(OSError(number, os.strerror(number)))
    user = fds[1] if len(fds) > 1 else None
    return Anchor(pid, user, fds[0], joins_user, ours.detach())


def _run_anchor(kinds: int, keeper: socket.socket) -> None:
    try:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kinds)
        paths = ["/proc/self/ns/net"]
        if kinds & kernel.NEW_USER:
            kernel.keep_identity(uid, gid)
            paths.append("/proc/self/ns/user")
        kernel.bring_up_loopback(METADATA_ADDRESS)
        socket.send_fds(keeper, [b"ready"], [os.open(path, os.O_RDONLY) for path in paths])
        kernel.drop_capabilities()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        _wait_for_keeper_exit(keeper)
    except OSError as error:
        with contextlib.suppress(OSError):
            keeper.send(str(error.errno).encode())
    finally:
        os._exit(0)


def _wait_for_keeper_exit(keeper: socket.socket) -> None:
    """Wait until the keeper has ended, and kill the processes that it has registered."""
    pidfds: list[int] = []
    while True:
        data, fds, _, _ = socket.recv_fds(keeper, 1, 1)
        if not data:
            break
        pidfds += fds
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def open_inside(anchor: Anchor, wanted: list[tuple[int, Address]]) -> list[socket.socket | None]:
    """Open sockets inside the namespace, for use outside; TCP sockets listen.

    None for an address that is not available there.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _run_inside(anchor, lambda: _send_sockets(theirs, wanted))
    theirs.close()
    sockets: list[socket.socket | None] = []
    with ours:
        for _ in wanted:
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            sockets.append(socket.socket(fileno=fds[0]) if fds else None)
            ours.send(b".")
    os.waitpid(pid, 0)
    return sockets


def _send_sockets(receiver: socket.socket, wanted: list[tuple[int, Address]]) -> None:
    for kind, address in wanted:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with socket.socket(family, kind) as opened:
            try:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                opened.bind(address)
                if kind == socket.SOCK_STREAM:
                    opened.listen(BACKLOG)
                socket.send_fds(receiver, [b"."], [opened.fileno()])
            except OSError:
                receiver.send(b".")
        receiver.recv(1)  # wait, so that two sockets never arrive in one message


def _run_inside(anchor: Anchor, work: Callable[[], None]) -> None:
    try:
        if anchor.user is not None and anchor.joins_user:
            kernel.setns(anchor.user, kernel.NEW_USER)
        kernel.setns(anchor.net, kernel.NEW_NET)
        work()
    finally:
        os._exit(0)

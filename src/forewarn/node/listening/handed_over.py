"""Sockets that were opened by whoever started us: systemd's socket activation.

LISTEN_FDS says how many there are, from descriptor 3 on, LISTEN_FDNAMES what they are called, and
LISTEN_PID for whom they are meant. Such a socket outlives us: callers wait with the kernel while
the service is restarted, and none is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

import msgspec

from forewarn.node.listening.sockets import CannotListen
from forewarn.support.text import listing

FIRST = 3  # the first descriptor that is handed over
METADATA, CONTROL = "metadata", "control"
OURS = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")

_HOW = "FileDescriptorName=metadata or FileDescriptorName=control in its socket unit"


class HandedOverSockets(msgspec.Struct, frozen=True):
    """Descriptors of listening sockets."""

    metadata: tuple[int, ...] = ()
    control: int | None = None

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> HandedOverSockets:
        """As the environment says, from which it is removed: children are not meant."""
        said = {name: environment.pop(name, "") for name in OURS}
        if said["LISTEN_PID"] != str(os.getpid()) or not said["LISTEN_FDS"].isdecimal():
            return cls()
        count = int(said["LISTEN_FDS"])
        names = said["LISTEN_FDNAMES"].split(":") if said["LISTEN_FDNAMES"] else []
        names += ["unknown"] * (count - len(names))
        found: dict[str, list[int]] = {METADATA: [], CONTROL: []}
        for fd, name in zip(range(FIRST, FIRST + count), names, strict=False):
            if name not in found:
                raise CannotListen(
                    f"a socket called '{name[:80]}' was handed over, and it is not known what for;"
                    f" say {_HOW}"
                )
            _check(fd, name)
            os.set_inheritable(fd, False)
            found[name].append(fd)
        if len(found[CONTROL]) > 1:
            raise CannotListen(
                f"{len(found[CONTROL])} sockets called 'control' were handed over; one is enough"
            )
        return cls(tuple(found[METADATA]), next(iter(found[CONTROL]), None))


def adopted(fd: int) -> socket.socket:
    """The socket behind a descriptor that was handed over, as if we had opened it."""
    with socket.socket(fileno=fd) as found:
        # Said outright which protocol, or the loop leaves Nagle's delay on every answer.
        made = socket.socket(found.family, found.type, socket.IPPROTO_TCP, fileno=os.dup(fd))
        found.detach()
    made.setblocking(False)
    return made


def where(fd: int) -> tuple[str, int]:
    """The host and port that it listens on."""
    with socket.socket(fileno=os.dup(fd)) as found:
        host, port = found.getsockname()[:2]
        return host, port


def enough_for(workers: int, sockets: int, address: str) -> None:
    """Each worker answers on a socket of its own."""
    if sockets != workers:
        lines = listing([f"ListenStream={address}"] * min(workers, 3))
        raise CannotListen(
            f"{sockets} sockets called 'metadata' were handed over for {address} to {workers}"
            f" workers; each needs one of its own: write ReusePort=yes and {workers} times the same"
            f" ListenStream= into the socket unit ({lines})"
        )


def _check(fd: int, name: str) -> None:
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            internet = found.family in (socket.AF_INET, socket.AF_INET6)
            if found.type == socket.SOCK_STREAM and listens and internet:
                return
            what = f"{found.family.name} {found.type.name}{'' if listens else ', not listening'}"
    except OSError as error:
        what = error.strerror or str(error)
    raise CannotListen(
        f"the socket called '{name}' that was handed over (descriptor {fd}) is no listening TCP"
        f" socket ({what}); use ListenStream=HOST:PORT and Accept=no"
    )

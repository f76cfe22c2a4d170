"""The listening sockets that a service takes over from systemd (socket activation).

LISTEN_FDS is the number of sockets handed over, from descriptor 3 on, LISTEN_FDNAMES their names,
and LISTEN_PID the process they are meant for. Such a socket outlives the service: while it is
restarted, callers wait in the kernel's queue and none is refused. The remaining sockets are opened
in `node.wiring`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

import msgspec

from forewarn.node.config import Address, Config
from forewarn.node.listening.sockets import CannotListen, confined

FIRST = 3  # the first descriptor that is handed over
METADATA, CONTROL = "metadata", "control"
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")

_NAMES = "FileDescriptorName=metadata or FileDescriptorName=control"


class HandedOverSockets(msgspec.Struct, frozen=True):
    """Descriptors of listening sockets."""

    metadata: tuple[int, ...] = ()
    control: int | None = None

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> HandedOverSockets:
        """Read systemd's variables, and remove them so that child processes do not see them.

        Raises CannotListen if a socket cannot be used."""
        variables = {name: environment.pop(name, "") for name in VARIABLES}
        if variables["LISTEN_PID"] != str(os.getpid()) or not variables["LISTEN_FDS"].isdecimal():
            return cls()
        count = int(variables["LISTEN_FDS"])
        names = variables["LISTEN_FDNAMES"].split(":") if variables["LISTEN_FDNAMES"] else []
        names += ["unknown"] * (count - len(names))
        fds: dict[str, list[int]] = {METADATA: [], CONTROL: []}
        for fd, name in zip(range(FIRST, FIRST + count), names, strict=False):
            if name not in fds:
                raise CannotListen(
                    f"a socket called '{name[:80]}' was handed over, but its purpose is unknown;"
                    f" set {_NAMES} in its socket unit"
                )
            _check_listening(fd, name)
            os.set_inheritable(fd, False)
            fds[name].append(fd)
        if len(fds[CONTROL]) > 1:
            raise CannotListen(
                f"{len(fds[CONTROL])} sockets called 'control' were handed over; one is enough"
            )
        return cls(tuple(fds[METADATA]), next(iter(fds[CONTROL]), None))


def adopt(fd: int) -> socket.socket:
    """Return a socket for a descriptor that was handed over."""
    with socket.socket(fileno=fd) as original:
        # With an explicit protocol: otherwise asyncio does not disable Nagle's algorithm.
        adopted = socket.socket(
            original.family, original.type, socket.IPPROTO_TCP, fileno=os.dup(fd)
        )
        original.detach()
    adopted.setblocking(False)
    return adopted


def bound_address(fd: int) -> Address:
    """Return the address that a descriptor's socket is bound to."""
    with socket.socket(fileno=os.dup(fd)) as listener:
        host, port = listener.getsockname()[:2]
        return Address(host, port)


def check_socket_count(sockets: int, address: str) -> None:
    """Raise CannotListen if several sockets are bound to one address."""
    if sockets > 1:
        raise CannotListen(
            f"{sockets} sockets called 'metadata' were handed over for {address}; one is enough:"
            f" write ListenStream={address} only once into the socket unit"
        )


def use_handed_over(config: Config, handed_over: HandedOverSockets, anywhere: bool) -> Config:
    """Return the configuration with the sockets that were handed over in place of those that would
    be opened. Unless `anywhere`, those for guests must be bound to link-local or loopback
    addresses. Raises CannotListen."""
    if handed_over.metadata and config.nodes is not None:
        raise CannotListen(
            "a socket called 'metadata' was handed over, but guests are answered by nodes"
            f" (nodes = {config.nodes.address}); mask its socket unit"
        )
    if handed_over.metadata:
        by_address = _by_address(config, handed_over, anywhere)
        first, *more = by_address
        config = msgspec.structs.replace(
            config,
            metadata=first,
            more_metadata=tuple(more),
            metadata_fds=tuple(by_address.values()),
        )
    if handed_over.control is not None:
        config = msgspec.structs.replace(
            config, control=bound_address(handed_over.control), control_fd=handed_over.control
        )
    return config


def not_handed_over(config: Config, handed_over: HandedOverSockets) -> list[Address]:
    """Return the addresses in the settings on which nothing listens, because the sockets that were
    handed over are used instead and none of them is bound there."""
    if not handed_over.metadata:
        return []
    bound = {bound_address(fd) for fd in handed_over.metadata}
    return [a for a in config.guest_addresses if a.port and a not in bound]


def _by_address(
    config: Config, handed_over: HandedOverSockets, anywhere: bool
) -> dict[Address, int]:
    """Return the guests' descriptors by the address they listen on, checked like addresses in the
    settings. Those that the settings name come first and in that order: systemd promises none."""
    by_address: dict[Address, list[int]] = {}
    for fd in handed_over.metadata:
        by_address.setdefault(bound_address(fd), []).append(fd)
    for address, fds in by_address.items():
        check_socket_count(len(fds), str(address))
        if not anywhere and not confined(address.host):
            raise CannotListen(
                f"the socket called 'metadata' that was handed over listens on {address}: guests"
                " are identified by their address alone, so the endpoint must be bound to a"
                " link-local or loopback address; change ListenStream=, or set"
                " allow_other_addresses = true to allow others"
            )
    configured = [address for address in config.guest_addresses if address in by_address]
    ordered = dict.fromkeys([*configured, *by_address])
    return {address: by_address[address][0] for address in ordered}


def _check_listening(fd: int, name: str) -> None:
    try:
        with socket.socket(fileno=os.dup(fd)) as listener:
            listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            internet = listener.family in (socket.AF_INET, socket.AF_INET6)
            if listener.type == socket.SOCK_STREAM and listens and internet:
                return
            family, kind = listener.family.name, listener.type.name
            what = f"{family} {kind}{'' if listens else ', not listening'}"
    except OSError as error:
        what = error.strerror or str(error)
    raise CannotListen(
        f"the socket called '{name}' that was handed over (descriptor {fd}) is not a listening TCP"
        f" socket ({what}); use ListenStream=HOST:PORT and Accept=no"
    )

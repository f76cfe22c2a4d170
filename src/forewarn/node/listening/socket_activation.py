"""The listening sockets of a service: taken over from systemd (socket activation), or opened here.

LISTEN_FDS is the number of sockets handed over, from descriptor 3 on, LISTEN_FDNAMES their names,
and LISTEN_PID the process they are meant for. Such a socket outlives the service: while it is
restarted, callers wait in the kernel's queue and none is refused.

A service in one process opens the remaining sockets itself, in `node.wiring`; with workers, all of
them are opened here, one per worker and address.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

import msgspec

from forewarn.node.config import Address, Config
from forewarn.node.listening.reuseport import open_several, spread
from forewarn.node.listening.sockets import CannotListen, all_or_none, confined, open_socket
from forewarn.support.text import counted, listing

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


def check_socket_count(workers: int, sockets: int, address: str) -> None:
    """Raise CannotListen unless each worker gets a socket of its own."""
    if sockets != workers:
        lines = listing([f"ListenStream={address}"] * min(workers, 3))
        raise CannotListen(
            f"{counted(sockets, 'socket')} called 'metadata' for {address} handed over to"
            f" {counted(workers, 'worker')}; each needs one of its own: write ReusePort=yes and"
            f" {workers} times the same ListenStream= into the socket unit ({lines})"
        )


class OpenSockets(msgspec.Struct, frozen=True):
    """All sockets of a service with workers."""

    metadata: tuple[Address, ...]  # the real addresses, also where port 0 was configured
    control: Address
    metadata_fds: tuple[tuple[int, ...], ...]  # by worker: one for each address
    control_fd: int


def open_all(config: Config, handed_over: HandedOverSockets, anywhere: bool) -> OpenSockets:
    """Open every socket that was not handed over, for a service with workers.

    Unless `anywhere`, sockets for guests must be bound to link-local or loopback addresses."""
    assert config.control is not None
    with all_or_none() as opened:
        groups = _adopt_metadata(config, handed_over, anywhere, opened)
        if not groups:
            for address in config.guest_addresses:
                sockets = open_several(address, config.workers)
                opened += sockets
                groups[Address(address.host, sockets[0].getsockname()[1])] = sockets
        if handed_over.control is not None:
            operators, control = adopt(handed_over.control), bound_address(handed_over.control)
        else:
            operators = open_socket(config.control)
            control = Address(config.control.host, operators.getsockname()[1])
    fds = zip(*([s.detach() for s in sockets] for sockets in groups.values()), strict=True)
    return OpenSockets(tuple(groups), control, tuple(fds), operators.detach())


def use_handed_over(config: Config, handed_over: HandedOverSockets, anywhere: bool) -> Config:
    """Return the configuration of a service in one process, with the sockets that were handed over
    in place of those it would open."""
    if handed_over.metadata and config.nodes is not None:
        raise CannotListen(
            "a socket called 'metadata' was handed over, but guests are answered by nodes"
            f" (nodes = {config.nodes.address}); mask its socket unit"
        )
    if handed_over.metadata:
        by_address = _by_address(config, handed_over, 1, anywhere)
        first, *more = by_address
        config = msgspec.structs.replace(
            config,
            metadata=first,
            more_metadata=tuple(more),
            metadata_fds=tuple(fd for fds in by_address.values() for fd in fds),
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


def _adopt_metadata(
    config: Config, handed_over: HandedOverSockets, anywhere: bool, opened: list[socket.socket]
) -> dict[Address, list[socket.socket]]:
    """Adopt the sockets that were handed over, and return them by address, one for each worker."""
    groups: dict[Address, list[socket.socket]] = {}
    for address, fds in _by_address(config, handed_over, config.workers, anywhere).items():
        groups[address] = [adopt(fd) for fd in fds]
        opened += groups[address]
        _check_shared(address, groups[address])
        spread(groups[address])
    return groups


def _by_address(
    config: Config, handed_over: HandedOverSockets, workers: int, anywhere: bool
) -> dict[Address, list[int]]:
    """Group the guests' descriptors by the address they listen on. Addresses that the settings name
    come first and in that order, since systemd promises none; all are checked like those in the
    settings."""
    by_address: dict[Address, list[int]] = {}
    for fd in handed_over.metadata:
        by_address.setdefault(bound_address(fd), []).append(fd)
    for address, fds in by_address.items():
        check_socket_count(workers, len(fds), str(address))
        if not anywhere and not confined(address.host):
            raise CannotListen(
                f"the socket called 'metadata' that was handed over listens on {address}: guests"
                " are identified by their address alone, so the endpoint must be bound to a"
                " link-local or loopback address; change ListenStream=, or set"
                " allow_other_addresses = true to allow others"
            )
    configured = [address for address in config.guest_addresses if address in by_address]
    return {address: by_address[address] for address in dict.fromkeys([*configured, *by_address])}


def _check_shared(address: Address, sockets: list[socket.socket]) -> None:
    """Check that callers can be spread over these sockets: all of them need SO_REUSEPORT."""
    shared = all(s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) for s in sockets)
    if len(sockets) > 1 and not shared:
        raise CannotListen(
            f"the sockets called 'metadata' that were handed over for {address} cannot share it;"
            " write ReusePort=yes and the same ListenStream= for each worker into the socket unit"
        )


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

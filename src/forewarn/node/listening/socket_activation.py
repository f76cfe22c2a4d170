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
from pathlib import Path

import msgspec

from forewarn.node.config import Address, Config
from forewarn.node.listening.sockets import CannotListen, confined

FIRST = 3  # the first descriptor that is handed over
METADATA, CONTROL, NODES = "metadata", "control", "nodes"
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")

_NAMES = "FileDescriptorName= to metadata, control or nodes"
_OPEN_TO_ALL = 0o002  # bit of the mode of a socket's file: every user can connect


class HandedOverSockets(msgspec.Struct, frozen=True):
    """Descriptors of listening sockets."""

    metadata: tuple[int, ...] = ()
    control: int | None = None
    nodes: int | None = None  # a UNIX socket, for the node on this host

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
        fds: dict[str, list[int]] = {METADATA: [], CONTROL: [], NODES: []}
        for fd, name in zip(range(FIRST, FIRST + count), names, strict=False):
            if name not in fds:
                raise CannotListen(
                    f"a socket called '{name[:80]}' was handed over, but its purpose is unknown;"
                    f" set {_NAMES} in its socket unit"
                )
            _check_listening(fd, name)
            os.set_inheritable(fd, False)
            fds[name].append(fd)
        for name in (CONTROL, NODES):
            if len(fds[name]) > 1:
                raise CannotListen(
                    f"{len(fds[name])} sockets called '{name}' were handed over; one is enough"
                )
        return cls(
            tuple(fds[METADATA]), next(iter(fds[CONTROL]), None), next(iter(fds[NODES]), None)
        )


def adopt(fd: int) -> socket.socket:
    """Return a socket for a descriptor that was handed over."""
    with socket.socket(fileno=fd) as original:
        # With an explicit protocol: otherwise asyncio does not disable Nagle's algorithm.
        protocol = 0 if original.family == socket.AF_UNIX else socket.IPPROTO_TCP
        adopted = socket.socket(original.family, original.type, protocol, fileno=os.dup(fd))
        original.detach()
    adopted.setblocking(False)
    return adopted


def bound_address(fd: int) -> Address:
    """Return the address that a descriptor's socket is bound to."""
    with socket.socket(fileno=os.dup(fd)) as listener:
        host, port = listener.getsockname()[:2]
        return Address(host, port)


def bound_path(fd: int) -> Path:
    """Return the path of a descriptor's UNIX socket. Raises CannotListen if it has none, or if
    every user can open it."""
    with socket.socket(fileno=os.dup(fd)) as listener:
        name = listener.getsockname()
    try:
        mode = Path(name).stat().st_mode if isinstance(name, str) and name else _OPEN_TO_ALL
    except OSError as error:
        raise CannotListen(
            f"the socket called 'nodes' that was handed over is not at {name}: {error.strerror}"
        ) from error
    if mode & _OPEN_TO_ALL:
        raise CannotListen(
            f"the socket called 'nodes' that was handed over ({name!r}) can be opened by every"
            " user; use ListenStream=PATH with SocketUser= and SocketMode=0600"
        )
    return Path(name)


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
    if handed_over.metadata and config.has_nodes:
        raise CannotListen(
            "a socket called 'metadata' was handed over, but guests are answered by nodes (the"
            " setting nodes); mask its socket unit"
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
    if handed_over.nodes is not None:
        if config.local_node is None:
            raise CannotListen(
                "a socket called 'nodes' was handed over, but the setting nodes names no path; add"
                " it there, or stop and disable its socket unit"
            )
        local_node = msgspec.structs.replace(config.local_node, path=bound_path(handed_over.nodes))
        config = msgspec.structs.replace(config, local_node=local_node, nodes_fd=handed_over.nodes)
    return config


def check_control(address: Address | None, handed_over: HandedOverSockets) -> None:
    """Raise CannotListen if the socket for operators that was handed over is bound to another
    address than the one that somebody has set."""
    if handed_over.control is None or address is None or not address.port:
        return
    if (bound := bound_address(handed_over.control)) != address:
        raise CannotListen(
            f"control = {address}, but the socket called 'control' that was handed over listens on"
            f" {bound}: write the same address into ListenStream= ('systemctl edit"
            " forewarn-control.socket'), or mask its socket unit"
        )


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
            families = (socket.AF_UNIX,) if name == NODES else (socket.AF_INET, socket.AF_INET6)
            if listener.type == socket.SOCK_STREAM and listens and listener.family in families:
                return
            family, kind = listener.family.name, listener.type.name
            what = f"{family} {kind}{'' if listens else ', not listening'}"
    except OSError as error:
        what = error.strerror or str(error)
    raise CannotListen(
        f"the socket called '{name}' that was handed over (descriptor {fd}) is not a listening"
        f" {'UNIX' if name == NODES else 'TCP'} socket ({what}); use"
        f" ListenStream={'PATH' if name == NODES else 'HOST:PORT'} and Accept=no"
    )

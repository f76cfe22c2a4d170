"""The sockets of a service with several processes: one for each worker, one for operators; opened
here, or handed over by whoever started us.
"""

from __future__ import annotations

import socket

import msgspec

from forewarn.node.config import Address, Config
from forewarn.node.listening.handed_over import HandedOverSockets, adopted, enough_for, where
from forewarn.node.listening.reuseport import open_several, spread
from forewarn.node.listening.sockets import CannotListen, all_or_none, confined, open_one


class Opened(msgspec.Struct, frozen=True):
    metadata: tuple[Address, ...]  # the real addresses, also where port 0 was configured
    control: Address
    metadata_fds: tuple[tuple[int, ...], ...]  # by worker: one for each address
    control_fd: int


def open_all(config: Config, handed: HandedOverSockets, anywhere: bool) -> Opened:
    """`anywhere`: guests may also ask at addresses that others than they can reach."""
    assert config.control is not None
    with all_or_none() as opened:
        groups = _handed_groups(config, handed, anywhere, opened)
        if not groups:
            for address in config.guest_addresses:
                sockets = open_several(address, config.workers)
                opened += sockets
                groups[Address(address.host, sockets[0].getsockname()[1])] = sockets
        if handed.control is not None:
            operators, control = adopted(handed.control), Address(*where(handed.control))
        else:
            operators = open_one(config.control)
            control = Address(config.control.host, operators.getsockname()[1])
    fds = zip(*([s.detach() for s in sockets] for sockets in groups.values()), strict=True)
    return Opened(tuple(groups), control, tuple(fds), operators.detach())


def _handed_groups(
    config: Config, handed: HandedOverSockets, anywhere: bool, opened: list[socket.socket]
) -> dict[Address, list[socket.socket]]:
    """Adopt the sockets that were handed over, and return them by address, one for each worker."""
    groups: dict[Address, list[socket.socket]] = {}
    for address, fds in _by_address(config, handed, config.workers, anywhere).items():
        groups[address] = [adopted(fd) for fd in fds]
        opened += groups[address]
        _check_shared(address, groups[address])
        spread(groups[address])
    return groups


def _by_address(
    config: Config, handed: HandedOverSockets, workers: int, anywhere: bool
) -> dict[Address, list[int]]:
    """Group the guests' descriptors by the address they listen on. Addresses that the settings name
    come first and in that order, since systemd promises none; all are checked like those in the
    settings."""
    found: dict[Address, list[int]] = {}
    for fd in handed.metadata:
        found.setdefault(Address(*where(fd)), []).append(fd)
    for address, fds in found.items():
        enough_for(workers, len(fds), str(address))
        if not anywhere and not confined(address.host):
            raise CannotListen(
                f"the socket called 'metadata' that was handed over listens on {address}: guests"
                " are known by their address alone, so the endpoint is bound to link-local or"
                " loopback; change ListenStream=, or set allow_other_addresses = true if you"
                " mean it"
            )
    named = [address for address in config.guest_addresses if address in found]
    return {address: found[address] for address in dict.fromkeys([*named, *found])}


def _check_shared(address: Address, sockets: list[socket.socket]) -> None:
    """Check that callers can be spread over these sockets: all of them need SO_REUSEPORT."""
    shared = all(s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) for s in sockets)
    if len(sockets) > 1 and not shared:
        raise CannotListen(
            f"the sockets called 'metadata' that were handed over for {address} cannot share it;"
            " write ReusePort=yes and the same ListenStream= for each worker into the socket unit"
        )


def not_handed_over(config: Config, handed: HandedOverSockets) -> list[Address]:
    """Return the addresses in the settings on which nothing listens, because the sockets that were
    handed over are used instead and none of them is bound there."""
    if not handed.metadata:
        return []
    found = {Address(*where(fd)) for fd in handed.metadata}
    return [a for a in config.guest_addresses if a.port and a not in found]


def with_handed(config: Config, handed: HandedOverSockets, anywhere: bool) -> Config:
    """For a service in one process: what was handed over instead of what was to be opened."""
    if handed.metadata:
        found = _by_address(config, handed, 1, anywhere)
        first, *more = found
        config = msgspec.structs.replace(
            config,
            metadata=first,
            more_metadata=tuple(more),
            metadata_fds=tuple(fd for fds in found.values() for fd in fds),
        )
    if handed.control is not None:
        config = msgspec.structs.replace(
            config, control=Address(*where(handed.control)), control_fd=handed.control
        )
    return config

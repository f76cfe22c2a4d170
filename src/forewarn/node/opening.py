"""The sockets of a service with several processes: one for each worker, one for operators; opened
here, or handed over by whoever started us.
"""

from __future__ import annotations

import socket

import msgspec

from forewarn.node.config import Address, Config
from forewarn.node.handed import Handed, adopted, enough_for, where
from forewarn.node.sockets import CannotListen, confined, open_one
from forewarn.node.spreading import open_several, spread


class Opened(msgspec.Struct, frozen=True):
    metadata: Address  # where it really is, if any port would do
    control: Address
    metadata_fds: tuple[int, ...]
    control_fd: int


def open_all(config: Config, handed: Handed, anywhere: bool) -> Opened:
    """`anywhere`: guests may also ask at addresses that others than they can reach."""
    assert config.metadata is not None
    assert config.control is not None
    if handed.metadata:
        enough_for(config.workers, len(handed.metadata), str(config.metadata))
        guests = [adopted(fd) for fd in handed.metadata]
        _together(guests)
        spread(guests)
        metadata = _confined(handed, anywhere)
    else:
        guests = open_several(config.metadata, config.workers)
        metadata = Address(config.metadata.host, guests[0].getsockname()[1])
    if handed.control is not None:
        operators, control = adopted(handed.control), Address(*where(handed.control))
    else:
        operators = open_one(config.control)
        control = Address(config.control.host, operators.getsockname()[1])
    fds = tuple(listener.detach() for listener in guests)
    return Opened(metadata, control, fds, operators.detach())


def _confined(handed: Handed, anywhere: bool) -> Address:
    """Where the sockets are: what holds for an address in the settings holds for theirs."""
    address = Address(*where(handed.metadata[0]))
    if not anywhere and not confined(address.host):
        raise CannotListen(
            f"the socket called 'metadata' that was handed over listens on {address}: guests are"
            " known by their address alone, so the endpoint is bound to link-local or loopback;"
            " change ListenStream=, or set allow_other_addresses = true if you mean it"
        )
    return address


def _together(sockets: list[socket.socket]) -> None:
    """They have to share one address, or callers cannot be spread over them."""
    names = {listener.getsockname()[:2] for listener in sockets}
    shared = all(s.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) for s in sockets)
    if len(sockets) > 1 and (len(names) > 1 or not shared):
        raise CannotListen(
            "the sockets called 'metadata' that were handed over do not share one address; write"
            " ReusePort=yes and the same ListenStream= for each worker into the socket unit"
        )


def with_handed(config: Config, handed: Handed, anywhere: bool) -> Config:
    """For a service in one process: what was handed over instead of what was to be opened."""
    if handed.metadata:
        enough_for(1, len(handed.metadata), str(config.metadata))
        config = msgspec.structs.replace(
            config,
            metadata=_confined(handed, anywhere),
            metadata_fds=handed.metadata,
        )
    if handed.control is not None:
        config = msgspec.structs.replace(
            config, control=Address(*where(handed.control)), control_fd=handed.control
        )
    return config

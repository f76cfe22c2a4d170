"""Opening the sockets. On a developer's machine the endpoint is on every loopback address at once,
so that each pretended machine has one of its own; never beyond loopback."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator, Sequence

from forewarn.core.access import local as local
from forewarn.node.config import Address

BACKLOG = 2_048
EVERYWHERE = "0.0.0.0"  # on the device that a socket is bound to
TCP = socket.IPPROTO_TCP  # said outright, or the loop leaves Nagle's delay on every answer


class CannotListen(Exception):
    """An address cannot be had; the message says which and why."""


def open_one(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(why_not(address, error)) from error
    return listener


def open_loopback(port: int, hosts: Sequence[str]) -> list[socket.socket]:
    """One socket for all of loopback where the system allows binding to its device, else one
    for each host."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    except (OSError, AttributeError):
        listener.close()
        return one_each(port, hosts)
    try:
        listener.bind((EVERYWHERE, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(why_not(Address("127.0.0.1", port), error)) from error
    return [listener]


def one_each(port: int, hosts: Sequence[str]) -> list[socket.socket]:
    with all_or_none() as opened:
        for host in hosts:
            opened.append(open_one(Address(host, port)))
            port = opened[0].getsockname()[1]
    return opened


@contextlib.contextmanager
def all_or_none() -> Iterator[list[socket.socket]]:
    """Yield a list for listening sockets, all of which are closed if the block fails."""
    opened: list[socket.socket] = []
    try:
        yield opened
    except BaseException:
        for listener in opened:
            listener.close()
        raise


def confined(host: str) -> bool:
    """Is this an address that nobody beyond this machine and its guests can reach?"""
    address = _parsed(host)
    return local(host) or (address is not None and address.is_link_local)


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def why_not(address: Address, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"{address} is in use; choose another port, or port 0 for any that is free"
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; add it to an interface first"
        case errno.EACCES:
            return f"{address} needs privileges (a port below 1024); run as root or choose another"
    return f"{address}: {error.strerror or error}"

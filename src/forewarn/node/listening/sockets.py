"""Opens listening sockets: on one address or, for `forewarn dev`, on every loopback address, so
that each simulated machine has an address of its own."""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import socket
from collections.abc import Iterator, Sequence

from forewarn.core.access import local as local
from forewarn.node.config import Address

BACKLOG = 2_048  # connections that wait to be accepted
ANY_HOST = "0.0.0.0"  # bound to the loopback device: every loopback address
SECOND_LOOPBACK = "127.0.1.1"  # the first address that a simulated machine is given
TCP = socket.IPPROTO_TCP  # explicit, because otherwise asyncio does not disable Nagle's algorithm


class CannotListen(Exception):
    """An address cannot be listened on; the message says which and why."""


def open_socket(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, TCP)
    try:
        # On Windows, SO_REUSEADDR would share the address with any other program.
        own = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
        listener.setsockopt(socket.SOL_SOCKET, own or socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(listen_problem(address, error)) from error
    return listener


def open_loopback(port: int, hosts: Sequence[str]) -> list[socket.socket]:
    """Open one socket for all of loopback if the system allows binding to its device, otherwise
    one for each host."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    except (OSError, AttributeError):
        listener.close()
        return open_each(port, hosts)
    try:
        listener.bind((ANY_HOST, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(listen_problem(Address("127.0.0.1", port), error)) from error
    return [listener]


@functools.cache
def has_many_loopback_addresses() -> bool:
    """Return whether this system has loopback addresses beside 127.0.0.1, as Linux and Windows
    have; macOS has none unless they were added."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((SECOND_LOOPBACK, 0))
        except OSError:
            return False
    return True


def open_each(port: int, hosts: Sequence[str]) -> list[socket.socket]:
    with all_or_none() as opened:
        for host in hosts:
            opened.append(open_socket(Address(host, port)))
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
    """Return whether only this machine and its guests can reach this address."""
    address = _parsed(host)
    return local(host) or (address is not None and address.is_link_local)


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def listen_problem(address: Address, error: OSError) -> str:
    """Return a message that says why an address cannot be listened on."""
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{address} is in use; choose another port (--metadata, --control), or port 0 for"
                " any that is free"
            )
        case errno.EADDRNOTAVAIL:
            return f"{address} is not an address of this machine; add it to an interface first"
        case errno.EACCES:
            return f"{address} needs privileges (a port below 1024); run as root or choose another"
    return f"{address}: {error.strerror or error}"

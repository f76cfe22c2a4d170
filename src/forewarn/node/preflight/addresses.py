"""Checks whether the addresses in the settings can be bound, and enough files be opened for the
connections to them."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from forewarn.node.config import Address, Config
from forewarn.node.open_files import files_for_guests
from forewarn.node.preflight.finding import warning
from forewarn.node.settings import LoadedSettings
from forewarn.support.finding import Finding

_IN_USE = (
    "This is fine if systemd listens there for this service; otherwise stop the program that does"
    " (ss -ltnp), or choose another address"
)


def address_findings(
    loaded: LoadedSettings, addresses: Iterable[tuple[str, Address]], running: bool
) -> Iterator[Finding]:
    """Check whether addresses can be bound, each with the name of its setting. These are only
    warnings, because systemd may hand the sockets over. If the service is running, it is assumed
    to be the one that uses an address."""
    for key, address in addresses:
        if problem := _bind_problem(address, running):
            yield warning(loaded, key, problem)
        if 0 < address.port < _first_unprivileged_port() and os.geteuid() != 0:
            yield warning(
                loaded,
                key,
                f"port {address.port} needs privileges: let systemd hand the socket over, or give"
                " the service CAP_NET_BIND_SERVICE",
            )


def open_files_findings(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    import resource

    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files_for_guests(config)
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed:
        yield warning(
            loaded,
            "max_connections",
            f"{config.limits.max_connections} connections need {needed} open files, but the system"
            f" allows {hard_limit} here; raise it with ulimit -n or LimitNOFILE=",
        )


def _bind_problem(address: Address, running: bool) -> str:
    """Return why an address cannot be bound, or ""."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{address.host} is not an address of this machine; add it to an interface, for"
                f" example ip address add {address.host}/{128 if ':' in address.host else 32}"
                " dev lo"
            )
        if error.errno == errno.EADDRINUSE:
            return "" if running else f"{address} is in use. {_IN_USE}"
        # A port that needs privileges has a warning of its own.
        return "" if error.errno == errno.EACCES else f"{address.host}: {error.strerror or error}"
    return ""


def _first_unprivileged_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text("ascii")
        return int(text)
    except (OSError, ValueError):
        return 1024

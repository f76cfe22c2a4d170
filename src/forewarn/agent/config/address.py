"""The address of the agent's health endpoint, as a configuration writes it. Pure."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


class InvalidListen(ValueError):
    """The agent cannot listen there; the message says what would be right."""


class ListenAddress(NamedTuple):
    """The `path` of a UNIX socket, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        return bool(self.path) or ipaddress.ip_address(self.host).is_loopback


def parse_listen(text: str, *, anywhere: bool = False) -> ListenAddress:
    """Parse `127.0.0.1:9169`, `[::1]:9169`, or the path of a socket. There is no authentication, so
    only addresses of this machine are accepted, unless `anywhere` is set."""
    if text.startswith("/"):
        return ListenAddress(path=text)
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        ip = None
    if not (colon and ip and port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise InvalidListen(
            f"'{text[:80]}' is not a valid listen address; expected an IP address and a port"
            " (127.0.0.1:9169) or the path of a UNIX socket (/run/forewarn-agent/socket)"
        )
    address = ListenAddress(host=str(ip), port=int(port))
    if not anywhere and not address.local:
        raise InvalidListen(
            f"{address} is reachable from other machines, and there is no authentication; listen on"
            " 127.0.0.1, or set listen_anywhere = true to allow it"
        )
    return address

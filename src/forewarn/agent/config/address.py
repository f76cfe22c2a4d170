"""Where the agent may be asked how it is: what a configuration says about it. Pure."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple


class BadListen(ValueError):
    """It cannot be listened there, whatever happens; says what would have been right."""


class ListenAddress(NamedTuple):
    """`path` of a UNIX socket, or host and port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.path or f"{host}:{self.port}"

    @property
    def local(self) -> bool:
        return bool(self.path) or ipaddress.ip_address(self.host).is_loopback


def listens(said: str, *, anywhere: bool = False) -> ListenAddress:
    """`127.0.0.1:9169`, `[::1]:9169`, or the path of a socket. Nobody asks for a token there, so
    it is not beyond this machine, unless that is said."""
    if said.startswith("/"):
        return ListenAddress(path=said)
    host, colon, port = said.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if not (colon and address and port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise BadListen(
            f"'{said[:80]}' is no place to listen; write an address and a port (127.0.0.1:9169), or"
            " the path of a socket (/run/forewarn-agent/socket)"
        )
    where = ListenAddress(host=str(address), port=int(port))
    if not anywhere and not where.local:
        raise BadListen(
            f"{where} can be reached from beyond this machine, and asks nobody who they are; listen"
            " on 127.0.0.1, or say that you mean it (listen_anywhere = true)"
        )
    return where

"""Reads the values of single settings. Raises SettingsError if a value cannot be used."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from forewarn.core.time import HOUR
from forewarn.node.config import Address, ArmListener, LocalConnection, NodeConnections, Tls
from forewarn.node.listening.unix_socket import MAX_SOCKET_PATH, too_long
from forewarn.node.settings.model import Settings, SettingsError
from forewarn.service.access.authority import CERTIFICATE
from forewarn.service.access.machine_tokens import LEAST_KEY
from forewarn.support.program import ProgramUnusable, find_program
from forewarn.support.text import in_words, listing, parse_duration

MAX_GUEST_ADDRESSES = 8  # in `metadata`
MAX_CONTROL = 16  # control nodes
LEAST_CERTIFICATE_LIFE = HOUR  # with less, it would expire while control is restarted or repaired


def gates(table: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the command of each gate by name, with the absolute path of its program."""
    commands = {}
    for name, command in table.items():
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", name, re.ASCII):
            raise SettingsError(
                f"gate '{name[:80]}': the name of a gate consists of letters, digits, '.', '_'"
                " and '-'"
            )
        try:
            commands[name] = tuple(find_program(list(command)))
        except ProgramUnusable as error:
            raise SettingsError(f"gate '{name}': {error}") from error
    return commands


def tls(settings: Settings) -> Tls | None:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingsError("tls_certificate and tls_key belong together; set both, or neither")
    if not settings.tls_certificate:
        return None
    return Tls(Path(settings.tls_certificate), Path(settings.tls_key))


def node_connections(settings: Settings) -> tuple[NodeConnections | None, LocalConnection | None]:
    """Read where nodes on other hosts connect to, and where the one on this host does."""
    listed = settings.nodes
    texts = ([listed] if listed else []) if isinstance(listed, str) else listed
    places = [address_or_path("nodes", text) for text in texts]
    addresses = [place for place in places if isinstance(place, Address)]
    paths = [place for place in places if isinstance(place, Path)]
    if len(addresses) > 1 or len(paths) > 1:
        raise SettingsError(
            "nodes: give one address for nodes on other hosts, one path for the node on this host,"
            " or both"
        )
    return _tls_lines(settings, *addresses), _local_connection(settings, *paths)


def control_nodes(given: str | Sequence[str], path: str = "") -> list[Address | Path]:
    """Read where nodes, and driver processes, reach control. `path` says that it may be a path."""
    texts = [given] if isinstance(given, str) else given
    if not 1 <= len(texts) <= MAX_CONTROL or not all(texts):
        raise SettingsError(
            f"control must list 1 to {MAX_CONTROL} addresses of control for nodes, for example"
            f' ["192.0.2.11:8171"]{path}'
        )
    places = [address_or_path("control", text) for text in texts]
    if not path and any(isinstance(place, Path) for place in places):
        raise SettingsError(f"control = {listing(texts)}: a driver process needs HOST:PORT")
    return places


def _local_connection(settings: Settings, path: Path | None = None) -> LocalConnection | None:
    if path is None:
        if settings.nodes_host:
            raise SettingsError(not_used("nodes_host", "a path in nodes"))
        return None
    return LocalConnection(path, host_name("nodes_host", settings.nodes_host))


def _tls_lines(settings: Settings, where: Address | None = None) -> NodeConnections | None:
    needed = {
        key: getattr(settings, key) for key in ("nodes_certificate", "nodes_key", "nodes_authority")
    }
    if where is None:
        if settings.authority or any(needed.values()):
            given = next((key for key, value in needed.items() if value), "authority")
            raise SettingsError(not_used(given, "an address in nodes"))
        return None
    if settings.authority:
        return _own_lines(settings, where)
    if settings.nodes_addresses:
        raise SettingsError(not_used("nodes_addresses", "authority"))
    if missing := [key for key, value in needed.items() if not value]:
        raise SettingsError(
            f"nodes needs {listing(missing)}: nodes and control know each other by certificates"
        )
    pair = Tls(Path(settings.nodes_certificate), Path(settings.nodes_key))
    return NodeConnections(where, pair, Path(settings.nodes_authority))


def _own_lines(settings: Settings, where: Address) -> NodeConnections:
    """Read how nodes are enrolled by an authority that this service keeps."""
    for key in ("nodes_certificate", "nodes_key"):
        if getattr(settings, key):
            raise SettingsError(
                f"{key} cannot be combined with authority, which issues that certificate; remove"
                " one of them"
            )
    addresses = tuple(address("nodes_addresses", t) for t in settings.nodes_addresses or ())
    if len(addresses) > MAX_CONTROL:
        raise SettingsError(f"nodes_addresses: there are at most {MAX_CONTROL} control nodes")
    if not addresses and is_any(where.host):
        raise SettingsError(
            f"nodes = {where}: nodes cannot connect to this address; set nodes_addresses to those"
            ' of all control nodes, for example ["192.0.2.11:8171"]'
        )
    keeps = Path(settings.authority)
    return NodeConnections(
        where,
        None,
        Path(settings.nodes_authority) if settings.nodes_authority else keeps / CERTIFICATE,
        keeps,
        addresses,
        duration("certificate_life", settings.certificate_life, LEAST_CERTIFICATE_LIFE),
    )


def is_any(host: str) -> bool:
    """Return whether an address stands for all addresses of a machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def not_used(key: str, without: str) -> str:
    return f"{key} is only used with {without}; set that, or remove it"


def arm(settings: Settings) -> ArmListener | None:
    if not settings.arm:
        return None
    where = address("arm", settings.arm)
    if not settings.tls_certificate or not settings.tls_key:
        raise SettingsError(
            f"arm = {where}: az and Azure's SDKs send tokens over TLS alone; set tls_certificate"
            " and tls_key"
        )
    return ArmListener(where, Tls(Path(settings.tls_certificate), Path(settings.tls_key)))


def identities(settings: Settings) -> bytes:
    """Return the secret with which tokens of machines are signed; empty: there are none."""
    if not settings.identities:
        return b""
    if not settings.arm:
        raise SettingsError(
            "identities: tokens of machines are for az and Azure's SDKs; set arm as well"
        )
    try:
        secret = Path(settings.identities).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"identities: {error.filename}: {error.strerror}") from error
    if len(secret) < LEAST_KEY:
        raise SettingsError(
            f"identities: {settings.identities} has {len(secret)} bytes, and must have at least"
            f" {LEAST_KEY}, for example from: openssl rand -hex 32"
        )
    return secret


def address(key: str, text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}, for example 127.0.0.1:8169") from error


def address_or_path(key: str, text: str) -> Address | Path:
    """Read where control and nodes meet: HOST:PORT, or the absolute path of a UNIX socket."""
    if not text.startswith("/"):
        try:
            return Address.parse(text)
        except ValueError as error:
            raise SettingsError(
                f"{key}: {error}, for example 192.0.2.11:8171, nor the absolute path of a socket"
            ) from error
    if too_long(Path(text)):
        raise SettingsError(
            f"{key} = {text}: the path of a socket has at most {MAX_SOCKET_PATH} bytes;"
            f" set {key} to a shorter one"
        )
    return Path(text)


def host_name(key: str, text: str) -> str:
    """Read the name of a host of the inventory; if it is empty, that of this machine."""
    host = text or socket.gethostname()
    if not re.fullmatch(r"\S{1,253}", host):
        raise SettingsError(f"{key} = '{host[:80]}': must be the name of a host of the inventory")
    return host


def guest_addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    """Read the addresses for guests: at least one, and none of them twice."""
    if not 1 <= len(texts) <= MAX_GUEST_ADDRESSES:
        raise SettingsError(
            f"metadata lists {len(texts)} addresses; give 1 to {MAX_GUEST_ADDRESSES}, for example"
            ' ["169.254.169.254:80", "169.254.169.254:8080"]'
        )
    addresses = tuple(address("metadata", text) for text in texts)
    for first, second in combinations(addresses, 2):
        if collide(first, second):
            problem = "is listed twice" if first == second else f"overlaps {first}"
            raise SettingsError(f"metadata: {second} {problem}; give each address once")
    return addresses


def collide(first: Address, second: Address) -> bool:
    """Return whether a socket on the first address prevents another one on the second."""
    if first.port != second.port or not first.port:
        return False
    hosts = _canonical(first.host), _canonical(second.host)
    if hosts[0] == hosts[1] or "::" in hosts:
        return True
    return "0.0.0.0" in hosts and not any(":" in host for host in hosts)


def _canonical(host: str) -> str:
    """Return the host as it is bound, since one address can be written in several ways."""
    try:
        return str(ip_address("127.0.0.1" if host == "localhost" else host))
    except ValueError:
        return host


def duration(key: str, text: str, least: int = 0) -> int:
    try:
        value = parse_duration(text)
    except ValueError as error:
        raise SettingsError(f"{key}: {error}") from error
    if value < least:
        raise SettingsError(f"{key} = '{text}': must be at least {in_words(least)}")
    return value


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False

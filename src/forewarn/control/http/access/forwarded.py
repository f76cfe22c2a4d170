"""Requests that come through a reverse proxy: whose they are, and whether they were encrypted.

Only proxies that the settings name are believed. Of the addresses that they report, the last one
that is not a proxy's counts: whoever sends a request can write any others before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, TypeAlias

from forewarn.control.http.access.authentication import Refusal

Networks: TypeAlias = Collection[IPv4Network | IPv6Network]

FORWARDED, FOR, PROTO = b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"
SCHEMES = ("http", "https")


def apply_forwarded(scope: Any, headers: dict[bytes, list[bytes]], proxies: Networks) -> None:
    """Put the client and the scheme that proxies report in place of those of the connection."""
    client = str((scope.get("client") or ("", 0))[0])
    if not proxies or not _is_proxy(client, proxies):
        return
    if FORWARDED in headers and (FOR in headers or PROTO in headers):
        raise Refusal(
            400,
            "the request has both Forwarded and X-Forwarded headers, of which the proxy may have"
            " set only one; let it remove the other",
        )
    steps = _forwarded(headers) if FORWARDED in headers else _x_forwarded(headers)
    for address, scheme in steps:
        if scheme in SCHEMES:
            scope["scheme"] = scheme
        if address:
            scope["client"] = (address, 0)
        if not _is_proxy(address, proxies):
            return


def _forwarded(headers: dict[bytes, list[bytes]]) -> Iterator[tuple[str, str]]:
    """Yield the address and scheme of each step of the Forwarded header, the last one first."""
    for element in reversed(_list(headers, FORWARDED)):
        pairs = dict(pair.strip().partition("=")[::2] for pair in element.lower().split(";"))
        yield _address(pairs.get("for", "")), pairs.get("proto", "").strip('"')


def _x_forwarded(headers: dict[bytes, list[bytes]]) -> Iterator[tuple[str, str]]:
    """Yield the same of the X-Forwarded headers; a single scheme is that of all steps."""
    addresses, schemes = _list(headers, FOR), _list(headers, PROTO)
    for n in range(1, max(len(addresses), len(schemes)) + 1):
        address = _address(addresses[-n]) if n <= len(addresses) else ""
        yield address, schemes[-min(n, len(schemes))] if schemes else ""


def _list(headers: dict[bytes, list[bytes]], name: bytes) -> list[str]:
    text = b",".join(headers.get(name, [])).decode("latin-1")
    return [part.strip() for part in text.split(",")] if text else []


def _address(node: str) -> str:
    """Return the address of a node, without its port; empty if it is none."""
    node = node.strip('"')
    if node.startswith("["):
        node = node[1:].partition("]")[0]
    elif node.count(":") == 1:
        node = node.partition(":")[0]
    try:
        return str(ip_address(node))
    except ValueError:
        return ""


def _is_proxy(address: str, proxies: Networks) -> bool:
    return bool(address) and any(ip_address(address) in network for network in proxies)

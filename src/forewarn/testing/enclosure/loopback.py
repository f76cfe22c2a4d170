"""Finds the TCP ports and name servers on this machine's loopback.

Read from /proc and /etc/resolv.conf. A program in an enclosure has a loopback of its own, on which
these would be missing.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from pathlib import Path

MAX_LOOPBACK_PORTS = 1024  # that are relayed into an enclosure, lowest first

_LISTEN = "0A"

Address = tuple[str, int]


def listening(proc: Path = Path("/proc/net")) -> list[Address]:
    """Return the addresses and ports of TCP sockets that listen on loopback."""
    addresses: set[Address] = set()
    for name, loopback in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        with contextlib.suppress(OSError):  # no IPv6 here
            for line in (proc / name).read_text().splitlines()[1:]:
                local, state = (fields := line.split())[1], fields[3]
                address, port = _parse_address(local)
                if state != _LISTEN:
                    continue
                if address.is_unspecified:
                    addresses.add((loopback, port))
                    if address.version == 6:  # also IPv4, unless IPV6_V6ONLY is set
                        addresses.add(("127.0.0.1", port))
                elif address.is_loopback:
                    addresses.add((str(address), port))
    return sorted(addresses, key=lambda item: item[1])[:MAX_LOOPBACK_PORTS]


def name_servers(resolv: Path = Path("/etc/resolv.conf")) -> list[Address]:
    """Return the name servers that are on loopback."""
    servers = []
    with contextlib.suppress(OSError):
        for line in resolv.read_text(errors="replace").splitlines():
            fields = line.split()
            if len(fields) > 1 and fields[0] == "nameserver" and _is_loopback(fields[1]):
                servers.append((fields[1], 53))
    return servers


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _parse_address(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Parse an address of /proc/net/tcp: 32-bit words in the byte order of the machine."""
    raw, port = text.split(":")
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(raw[i : i + 8], 16) for i in range(0, len(raw), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    family = socket.AF_INET6 if len(words) == 4 else socket.AF_INET
    address = ipaddress.ip_address(socket.inet_ntop(family, packed))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, int(port, 16)  # Java, for example, uses IPv6 sockets for IPv4

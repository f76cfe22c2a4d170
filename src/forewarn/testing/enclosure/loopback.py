"""What listens on this machine's loopback, and which of its name servers are there.

Read from /proc and /etc/resolv.conf. A program in an enclosure has a loopback of its own, on
which these would be missed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import sys
from pathlib import Path

MAX_LOOPBACK_PORTS = 1024  # relayed into an enclosure; the lowest are

_LISTEN = "0A"

Place = tuple[str, int]


def listening(proc: Path = Path("/proc/net")) -> list[Place]:
    """Where a program on this machine can connect to on loopback: addresses and ports of TCP."""
    found: set[Place] = set()
    for name, loopback in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        with contextlib.suppress(OSError):  # no IPv6 here
            for line in (proc / name).read_text().splitlines()[1:]:
                local, state = (words := line.split())[1], words[3]
                address, port = _read(local)
                if state != _LISTEN:
                    continue
                if address.is_unspecified:
                    found.add((loopback, port))
                    if address.version == 6:  # both, unless it said otherwise
                        found.add(("127.0.0.1", port))
                elif address.is_loopback:
                    found.add((str(address), port))
    return sorted(found, key=lambda place: place[1])[:MAX_LOOPBACK_PORTS]


def name_servers(resolv: Path = Path("/etc/resolv.conf")) -> list[Place]:
    """Those of its name servers that are on loopback."""
    found = []
    with contextlib.suppress(OSError):
        for line in resolv.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver" and _is_loopback(words[1]):
                found.append((words[1], 53))
    return found


def _is_loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _read(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """An address as /proc/net/tcp has it: words of 32 bits in the machine's own order."""
    raw, port = text.split(":")
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(raw[i : i + 8], 16) for i in range(0, len(raw), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    family = socket.AF_INET6 if len(words) == 4 else socket.AF_INET
    address = ipaddress.ip_address(socket.inet_ntop(family, packed))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, int(port, 16)  # Java, for one, has IPv4 on sockets of IPv6

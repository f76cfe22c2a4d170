"""The offers of Windows' DHCP client, which keeps the options of its leases in the registry.

`winreg` exists on Windows only and is imported where it is used; the format is read without it.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any

import msgspec

from forewarn.client.discovery.lease_formats import OPTION, Offer, unicast

INTERFACES = r"SYSTEM\CurrentControlSet\Services\Tcpip\Parameters\Interfaces"
OPTIONS = "DhcpInterfaceOptions"
OBTAINED = "LeaseObtainedTime"

MAX_INTERFACES = 256
MAX_OPTIONS_SIZE = 64 * 1024

_HEAD = struct.Struct("<LLLLL")


class Option(msgspec.Struct, frozen=True):
    """A DHCP option that a server has sent for an interface."""

    code: int
    data: bytes
    expires: int
    """Unix time; 0 if unknown."""
    of_vendor: bool = False
    """Whether it is a vendor-specific option, whose code has another meaning."""


def parse_options(value: bytes) -> list[Option]:
    """Parse a sequence of options: code, padding, length, whether it is a vendor's, expiry, and the
    data, padded to a multiple of four bytes. An option that is cut off at the end is left out."""
    options: list[Option] = []
    value, at = value[:MAX_OPTIONS_SIZE], 0
    while at + _HEAD.size <= len(value):
        code, _, length, vendor, expires = _HEAD.unpack_from(value, at)
        data = value[at + _HEAD.size : at + _HEAD.size + length]
        if len(data) < length:
            break
        options.append(Option(code, data, expires, bool(vendor)))
        at += _HEAD.size + (length + 3) // 4 * 4
    return options


def offers(value: bytes, obtained: float = 0.0) -> list[Offer]:
    """Return the addresses of the metadata service in an interface's options."""
    return [
        Offer(address, obtained, option.expires or None)
        for option in parse_options(value)
        if option.code == OPTION and not option.of_vendor and (address := unicast(option.data))
    ]


def all_offers() -> list[Offer]:
    """Return the offers of all interfaces. Never raises; what cannot be read is left out."""
    try:
        winreg: Any = importlib.import_module("winreg")
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, INTERFACES) as interfaces:
            count = min(winreg.QueryInfoKey(interfaces)[0], MAX_INTERFACES)
            names = [winreg.EnumKey(interfaces, index) for index in range(count)]
    except (ImportError, OSError):
        return []
    return [offer for name in names for offer in _interface_offers(winreg, name)]


def _interface_offers(winreg: Any, name: str) -> list[Offer]:
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, f"{INTERFACES}\\{name}") as interface:
            value, _ = winreg.QueryValueEx(interface, OPTIONS)
            obtained, _ = winreg.QueryValueEx(interface, OBTAINED)
    except OSError:  # it has no lease
        return []
    if not isinstance(value, bytes):
        return []
    return offers(value, float(obtained) if isinstance(obtained, int) else 0.0)

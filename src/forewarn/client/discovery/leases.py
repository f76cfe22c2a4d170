"""The addresses of the metadata service in the leases of this system's DHCP clients (option 245).

Here are the files that the clients write, and the order of several offers. Their formats are in
`lease_formats`, the registry of Windows in `windows_registry`. Nothing here raises: a file that is
missing, unreadable, huge or garbage offers nothing, and the next one may.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import msgspec

from forewarn.client.discovery import lease_formats, windows_registry
from forewarn.client.discovery.lease_formats import Offer
from forewarn.support import guard

MAX_SIZE = 256 * 1024  # bytes of a file; of a longer one the end is read
MAX_FILES = 64  # in one directory, the newest
MAX_ENTRIES = 4_096  # of a directory that are examined
MAX_OFFERED = 8  # addresses
NMCLI_TIMEOUT = 2.0  # seconds

DHCLIENT = (
    ("var/lib/dhcp", "*.leases"),
    ("var/lib/dhclient", "*.lease*"),
    ("var/lib/NetworkManager", "dhclient-*.lease*"),
)
DHCLIENT_CONFIGURATION = (
    ("etc/dhcp", "dhclient*.conf"),
    ("etc", "dhclient*.conf"),
    ("var/lib/NetworkManager", "dhclient-*.conf"),
)
KEYED = (
    ("run/systemd/netif/leases", "*"),
    ("run/NetworkManager/devices", "*"),
    ("var/lib/NetworkManager", "internal-*.lease"),
)
PACKETS = (
    ("var/lib/dhcpcd", "*.lease"),
    ("var/lib/dhcpcd5", "*.lease"),
    ("var/db/dhcpcd", "*.lease"),
)
NMCLI = ("usr/bin/nmcli", "run/current-system/sw/bin/nmcli")
NETWORK_MANAGER = "run/NetworkManager"

Places: TypeAlias = Iterable[tuple[str, str]]


def offered_addresses(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the addresses of option 245, those of the latest leases first, each once.

    A lease that has expired or was released counts only if there is no other: a machine with a
    wrong clock should still find its endpoint, and a request shows whether it is valid.
    """
    if sys.platform == "win32":
        return _ranked(windows_registry.all_offers())
    offers = [*_dhclient_offers(root), *_keyed_offers(root), *_packet_offers(root)]
    if not _current(offers):
        offers += _network_manager_offers(root)
    return _ranked(offers)


def _ranked(offers: list[Offer]) -> tuple[str, ...]:
    latest = sorted(_current(offers) or offers, key=lambda offer: -offer.obtained)
    return tuple(dict.fromkeys(offer.address for offer in latest))[:MAX_OFFERED]


def _current(offers: list[Offer]) -> list[Offer]:
    now = guard.wall_us() / 1e6
    return [offer for offer in offers if offer.expires is None or offer.expires > now]


def _dhclient_offers(root: Path) -> Iterator[Offer]:
    names = set(lease_formats.UNNAMED)
    for file in _files(root, DHCLIENT_CONFIGURATION):
        names |= lease_formats.dhclient_names(file.text)
    for file in _files(root, DHCLIENT):
        yield from lease_formats.dhclient(file.text, names, file.changed)


def _keyed_offers(root: Path) -> Iterator[Offer]:
    for file in _files(root, KEYED):
        yield from lease_formats.keyed(file.text, file.changed)


def _packet_offers(root: Path) -> Iterator[Offer]:
    for file in _files(root, PACKETS):
        yield from lease_formats.packet(file.data, file.changed)


def _network_manager_offers(root: Path) -> list[Offer]:
    """Ask NetworkManager, of which older versions do not write the option to a file."""
    programs = [root / name for name in NMCLI if os.access(root / name, os.X_OK)]
    if not programs or not (root / NETWORK_MANAGER).is_dir():
        return []
    import subprocess

    arguments = ["--terse", "--escape", "no", "--fields", "GENERAL.DEVICE,DHCP4", "device", "show"]
    try:
        result = subprocess.run(
            [programs[0], *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=NMCLI_TIMEOUT,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return lease_formats.nmcli(result.stdout[:MAX_SIZE].decode("latin-1"))


# Files -------------------------------------------------------------------------------------------


class _File(msgspec.Struct, frozen=True):
    data: bytes
    changed: float

    @property
    def text(self) -> str:
        return self.data.decode("latin-1")  # which keeps every byte


def _files(root: Path, places: Places) -> Iterator[_File]:
    for directory, pattern in places:
        for path in _newest(root / directory, pattern):
            if file := _read(path):
                yield file


def _newest(directory: Path, pattern: str) -> list[str]:
    dated: list[tuple[float, str]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                if fnmatchcase(entry.name, pattern):
                    dated += _dated(entry)
    except (OSError, ValueError):
        pass
    return [path for _, path in sorted(dated, reverse=True)[:MAX_FILES]]


def _dated(entry: os.DirEntry[str]) -> list[tuple[float, str]]:
    try:
        return [(entry.stat().st_mtime, entry.path)]
    except OSError:  # gone, or a broken link
        return []


def _read(path: str) -> _File | None:
    """Read a regular file. dhclient's may grow long, and its end is what counts; no other file is
    ever that long."""
    try:
        with open(path, "rb", opener=_open_without_blocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            too_long = status.st_size > MAX_SIZE
            if too_long:
                file.seek(status.st_size - MAX_SIZE)
            data = file.read(MAX_SIZE)
    except (OSError, ValueError):
        return None
    return _File(_from_first_lease(data) if too_long else data, status.st_mtime)


def _open_without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _from_first_lease(data: bytes) -> bytes:
    at = data.find(b"\nlease {")
    return data[at:] if at >= 0 else b""

"""Where this system's DHCP clients say that the metadata service is: option 245 of their leases.

Here are the files they keep, and which of several offers comes first. How each is written is in
`lease_formats`, the registry of Windows in `registry`. Nothing here raises: a file that is not
there, not ours to read, huge or garbage says nothing, and the next may.
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

MAX_SIZE = 256 * 1024  # bytes of a file: of a longer one the end
MAX_FILES = 64  # in one directory, the newest
MAX_ENTRIES = 4_096  # of a directory, looked at
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


def offered(root: Path = Path("/")) -> tuple[str, ...]:
    """The addresses that option 245 names, those of the latest leases first, each once.

    A lease that has ended, or was given back, counts only if there is no other: a machine whose
    clock is wrong should find its endpoint all the same, and whoever asks there makes sure of it.
    """
    if sys.platform == "win32":
        return _ranked(windows_registry.offered())
    offers = [*_of_dhclient(root), *_of_keyed(root), *_of_packets(root)]
    if not _current(offers):
        offers += _of_network_manager(root)
    return _ranked(offers)


def _ranked(offers: list[Offer]) -> tuple[str, ...]:
    latest = sorted(_current(offers) or offers, key=lambda offer: -offer.obtained)
    return tuple(dict.fromkeys(offer.address for offer in latest))[:MAX_OFFERED]


def _current(offers: list[Offer]) -> list[Offer]:
    now = guard.wall_us() / 1e6
    return [offer for offer in offers if offer.expires is None or offer.expires > now]


def _of_dhclient(root: Path) -> Iterator[Offer]:
    names = set(lease_formats.UNNAMED)
    for file in _files(root, DHCLIENT_CONFIGURATION):
        names |= lease_formats.dhclient_names(file.text)
    for file in _files(root, DHCLIENT):
        yield from lease_formats.dhclient(file.text, names, file.changed)


def _of_keyed(root: Path) -> Iterator[Offer]:
    for file in _files(root, KEYED):
        yield from lease_formats.keyed(file.text, file.changed)


def _of_packets(root: Path) -> Iterator[Offer]:
    for file in _files(root, PACKETS):
        yield from lease_formats.packet(file.data, file.changed)


def _of_network_manager(root: Path) -> list[Offer]:
    """Older versions keep what they were told to themselves, and tell it when asked."""
    programs = [root / name for name in NMCLI if os.access(root / name, os.X_OK)]
    if not programs or not (root / NETWORK_MANAGER).is_dir():
        return []
    import subprocess

    words = ["--terse", "--escape", "no", "--fields", "GENERAL.DEVICE,DHCP4", "device", "show"]
    try:
        said = subprocess.run(
            [programs[0], *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=NMCLI_TIMEOUT,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return lease_formats.nmcli(said.stdout[:MAX_SIZE].decode("latin-1"))


# Files -------------------------------------------------------------------------------------------


class _File(msgspec.Struct, frozen=True):
    data: bytes
    changed: float

    @property
    def text(self) -> str:
        return self.data.decode("latin-1")  # so that every byte stays one


def _files(root: Path, places: Places) -> Iterator[_File]:
    for directory, pattern in places:
        for path in _newest(root / directory, pattern):
            if file := _read(path):
                yield file


def _newest(directory: Path, pattern: str) -> list[str]:
    found: list[tuple[float, str]] = []
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                if fnmatchcase(entry.name, pattern):
                    found += _dated(entry)
    except (OSError, ValueError):
        pass
    return [path for _, path in sorted(found, reverse=True)[:MAX_FILES]]


def _dated(entry: os.DirEntry[str]) -> list[tuple[float, str]]:
    try:
        return [(entry.stat().st_mtime, entry.path)]
    except OSError:  # gone, or a link to nowhere
        return []


def _read(path: str) -> _File | None:
    """A plain file, in one go; what is written to it meanwhile is of the next time. dhclient's may
    grow long, and its end is what counts; no other is ever so long, and would say nothing."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                return None
            too_long = about.st_size > MAX_SIZE
            if too_long:
                file.seek(about.st_size - MAX_SIZE)
            data = file.read(MAX_SIZE)
    except (OSError, ValueError):
        return None
    return _File(_from_a_lease_on(data) if too_long else data, about.st_mtime)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _from_a_lease_on(data: bytes) -> bytes:
    at = data.find(b"\nlease {")
    return data[at:] if at >= 0 else b""

"""The disks of a domain: which of them another host has, and how they are deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree

import libvirt


def local(definition: str, shared: Sequence[str], *, boot: bool = False) -> list[str]:
    """Return the files and devices of a definition that only its own host has: those that are not
    in `shared` directories. Disks on the network are everywhere. With `boot`, kernels and what a
    UEFI stores are looked at as well, which a running guest does not need."""
    domain = ElementTree.fromstring(definition)
    sources = _sources(domain)
    if boot:
        sources += [domain.findtext(f"os/{part}") or "" for part in ("kernel", "initrd", "nvram")]
    return [source for source in sources if source and not _is_in(source, shared)]


def delete(connection: Any, definition: str) -> None:
    """Delete the disks of a domain that libvirt knows as volumes of a pool."""
    for path in _sources(ElementTree.fromstring(definition), writable=True):
        with contextlib.suppress(libvirt.libvirtError):
            connection.storageVolLookupByPath(path).delete()


def _sources(domain: ElementTree.Element, *, writable: bool = False) -> list[str]:
    found = []
    for disk in domain.iterfind("devices/disk"):
        source = disk.find("source")
        if source is None or disk.get("type") == "network":
            continue
        if writable and (disk.find("readonly") is not None or disk.find("shareable") is not None):
            continue
        volume = "/".join(source.get(key, "") for key in ("pool", "volume")).strip("/")
        found.append(source.get("file") or source.get("dev") or volume)
    return found


def _is_in(path: str, directories: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(directory) for directory in directories)

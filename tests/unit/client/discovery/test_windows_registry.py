"""What Windows keeps of its leases is read from bytes; the calls are made on a stand-in, since
Windows itself is not here."""

from __future__ import annotations

import struct
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from forewarn.client.discovery import leases, windows_registry
from forewarn.client.discovery.lease_formats import Offer


def kept(code: int, data: bytes, vendor: int = 0, expires: int = 0x5745EC93) -> bytes:
    head = struct.pack("<LLLLL", code, 0, len(data), vendor, expires)
    return head + data.ljust((len(data) + 3) // 4 * 4, b"\0")


def test_the_registry_keeps_one_option_after_the_other() -> None:
    value = kept(15, b"a.test") + kept(43, b"") + kept(245, bytes([10, 0, 0, 1])) + kept(6, b"1234")
    assert [option.code for option in windows_registry.parse_options(value)] == [15, 43, 245, 6]
    assert windows_registry.offers(value, 5.0) == [Offer("10.0.0.1", 5.0, float(0x5745EC93))]
    assert windows_registry.offers(kept(245, bytes([10, 0, 0, 1]), vendor=1)) == []
    cut = value[: value.index(b"\xf5") + 22]
    assert [option.code for option in windows_registry.parse_options(cut)] == [15, 43]


def test_other_systems_have_no_registry() -> None:
    assert windows_registry.all_offers() == []


def windows(interfaces: dict[str, dict[str, object]]) -> SimpleNamespace:
    """The calls of `winreg` that are made, on interfaces as given."""

    def value(path: str, name: str) -> tuple[object, int]:
        try:
            return interfaces[path.rpartition("\\")[2]][name], 0
        except KeyError:
            raise FileNotFoundError(name) from None

    return SimpleNamespace(
        HKEY_LOCAL_MACHINE=0,
        OpenKey=lambda _key, path: nullcontext(path),
        QueryInfoKey=lambda _path: (len(interfaces), 0, 0),
        EnumKey=lambda _path, index: list(interfaces)[index],
        QueryValueEx=value,
    )


def test_all_interfaces_in_the_registry_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_there = windows(
        {
            "{no-lease}": {},
            "{odd}": {windows_registry.OPTIONS: "text" * 9, windows_registry.OBTAINED: 1},
            "{old}": {
                windows_registry.OPTIONS: kept(245, b"\x0a\0\0\1", expires=0),
                windows_registry.OBTAINED: 1,
            },
            "{new}": {
                windows_registry.OPTIONS: kept(245, b"\x0a\0\0\2", expires=0),
                windows_registry.OBTAINED: 2,
            },
        }
    )
    monkeypatch.setitem(sys.modules, "winreg", kept_there)
    monkeypatch.setattr(sys, "platform", "win32")
    assert leases.offered_addresses() == ("10.0.0.2", "10.0.0.1")

"""The formats in which DHCP clients (dhclient, systemd-networkd, NetworkManager and dhcpcd) write
their leases, and option 245 in them.

Pure: the content of a file in, offers out, whatever the content is. Which files there are, and
which offer comes first, is in `leases`; the registry of Windows is in `windows_registry`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime

import msgspec

OPTION = 245
"""The DHCP option with the metadata service's IPv4 address, as Azure's leases have it."""

UNNAMED: frozenset[str] = frozenset({"unknown-245", "option-245"})
"""dhclient's names of an option that its configuration does not name."""


class Offer(msgspec.Struct, frozen=True):
    """An address that a lease offers, and how long the lease is valid; times are Unix time."""

    address: str
    obtained: float = 0.0
    expires: float | None = None
    """None: as long as it is stored."""


def unicast(value: bytes | None) -> str | None:
    """Return the IPv4 address in an option, if it can be that of another machine."""
    if value is None or len(value) != 4 or not 1 <= value[0] <= 223 or value[0] == 127:
        return None
    return ".".join(str(byte) for byte in value)


def _offers(value: bytes | None, obtained: float, expires: float | None) -> list[Offer]:
    address = unicast(value)
    return [] if address is None else [Offer(address, obtained, expires)]


# dhclient ----------------------------------------------------------------------------------------

_NAMED = re.compile(rf"^[ \t]*option[ \t]+([\w-]+)[ \t]+code[ \t]+{OPTION}[ \t]*=", re.MULTILINE)
# A string that is never closed ends with its line, so that no garbage is read twice.
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"?|#[^\n]*|[{};]|[^\s{};"#]+')
_WHEN = re.compile(r"\d (\d{4})/(\d\d?)/(\d\d?) (\d\d?):(\d\d):(\d\d)", re.ASCII)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)


def dhclient_names(configuration: str) -> set[str]:
    """Return the names of option 245 in a dhclient.conf."""
    return set(_NAMED.findall(configuration))


def dhclient(text: str, names: Collection[str] = UNNAMED, obtained: float = 0.0) -> list[Offer]:
    """Return the offers of the last lease of each interface, the latest first.

    dhclient appends a lease whenever it obtains one, and an expired one when it releases it. A
    lease that is still being written has no end yet and does not count.
    """
    last: dict[str, list[Offer]] = {}
    for lease in _leases(text):
        interface, value, expires = "", None, None
        for word, *rest in lease:
            if word == "interface":
                interface = " ".join(rest)
            elif word == "expire":
                expires = _expiry(rest)
            elif word == "option" and len(rest) > 1 and rest[0] in names:
                value = _dhclient_value(" ".join(rest[1:]))
        last.pop(interface, None)  # so that it becomes the last one
        last[interface] = _offers(value, obtained, expires)
    return [offer for offers in reversed(last.values()) for offer in offers]


def _leases(text: str) -> Iterator[list[list[str]]]:
    """Yield the statements of each `lease { … }`, but not a server's (`lease 10.0.0.9 { … }`)."""
    depth, statement = 0, list[str]()
    lease: list[list[str]] | None = None
    for token in _TOKEN.findall(text):
        if token.startswith("#"):
            continue
        if token not in "{};":
            statement.append(token)
            continue
        if token == "{":
            depth += 1
            if statement[-1:] == ["lease"]:  # also after one that was never finished
                depth, lease = 1, []
        elif token == ";" and statement and depth == 1 and lease is not None:
            lease.append(statement)
        elif token == "}":
            depth = max(0, depth - 1)
            if depth == 0 and lease is not None:
                yield lease
                lease = None
        statement = []


def _expiry(words: list[str]) -> float | None:
    """Parse `6 2017/11/25 01:48:29` in UTC, `epoch 1511574509`, or `never`."""
    text = " ".join(words)
    if match := re.fullmatch(r"epoch (\d{1,15})", text, re.ASCII):
        return float(match[1])
    if match := _WHEN.fullmatch(text):
        year, month, day, hour, minute, second = map(int, match.groups())
        try:
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
        except ValueError:  # the 31st of February
            return None
    return None


def _dhclient_value(text: str) -> bytes | None:
    """Parse a value in any of the types that an option may have: string, ip-address, integers."""
    if text.startswith('"'):
        return _ESCAPE.sub(_unescape, text[1:].removesuffix('"')).encode("latin-1", "replace")
    if re.fullmatch(r"[0-9]{1,10}", text):
        return int(text).to_bytes(8, "big")[4:] if int(text) < 1 << 32 else None
    return _dotted(text.replace(",", ".")) or _hexadecimal(text)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if len(code) == 3:
        return chr(int(code[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t", "b": "\b"}.get(code, code)


# Formats with a key and a value on each line ----------------------------------------------------

_KEYS = frozenset(
    {
        f"OPTION_{OPTION}",  # systemd-networkd, and older NetworkManagers
        *(f"dhcp4.{kind}_{OPTION}" for kind in ("private", "unknown", "option")),
    }
)
_NMCLI = re.compile(r"DHCP4\.OPTION\[\d+\]:(\w+) = (.*)")


def keyed(text: str, obtained: float = 0.0) -> list[Offer]:
    """Return the offers of a lease of networkd, or of NetworkManager's state of a device."""
    return _keyed([line.strip().partition("=")[::2] for line in text.splitlines()], obtained)


def nmcli(text: str) -> list[Offer]:
    """Return the offers in the output of `nmcli --terse --escape no --fields DHCP4 device show`, in
    the order of the devices."""
    offers: list[Offer] = []
    for device in re.split(r"\n\s*\n", text):
        pairs = [(f"dhcp4.{key}", value) for key, value in _NMCLI.findall(device)]
        known = dict(pairs)
        expires = _seconds(known.get("dhcp4.expiry"))
        length = _seconds(known.get("dhcp4.dhcp_lease_time"))
        offers += _keyed(pairs, expires - length if expires and length else 0.0)
    return offers


def _keyed(pairs: list[tuple[str, str]], obtained: float) -> list[Offer]:
    value, expires = None, None
    for key, text in pairs:
        if key in _KEYS:
            value = _dotted(text) or _hexadecimal(text) or _packed(text)
        elif key == "dhcp4.expiry":
            expires = _seconds(text)
    return _offers(value, obtained, expires)


def _seconds(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[0-9]{1,15}", text) else None


# Values as text ----------------------------------------------------------------------------------


def _dotted(text: str) -> bytes | None:
    parts = text.split(".")
    if len(parts) != 4 or not all(re.fullmatch(r"[0-9]{1,3}", part) for part in parts):
        return None
    numbers = [int(part) for part in parts]
    return bytes(numbers) if max(numbers) < 256 else None


def _hexadecimal(text: str) -> bytes | None:
    """Parse `a8:3f:81:10`; dhclient omits leading zeros, as in `a:0:0:1`."""
    parts = text.split(":")
    if len(parts) != 4 or not all(re.fullmatch(r"[0-9a-fA-F]{1,2}", part) for part in parts):
        return None
    return bytes(int(part, 16) for part in parts)


def _packed(text: str) -> bytes | None:
    return bytes.fromhex(text) if re.fullmatch(r"[0-9a-fA-F]{8}", text) else None


# A DHCP packet, as dhcpcd stores it --------------------------------------------------------------

_COOKIE_AT, _COOKIE = 236, b"\x63\x82\x53\x63"
_PAD, _LEASE_TIME, _OVERLOAD, _END = 0, 51, 52, 255
_FILE, _SERVER_NAME = slice(108, 236), slice(44, 108)
_FOREVER = b"\xff\xff\xff\xff"


def packet(data: bytes, obtained: float = 0.0) -> list[Offer]:
    """Return the offers of an acknowledgement as the server sent it."""
    if data[_COOKIE_AT : _COOKIE_AT + 4] != _COOKIE:
        return []
    options = _options(data[_COOKIE_AT + 4 :])
    overload = options.get(_OVERLOAD, b"\0")[-1:]
    for bit, field in ((1, _FILE), (2, _SERVER_NAME)):  # fields that hold further options
        if overload and overload[0] & bit:
            for code, value in _options(data[field]).items():
                options[code] = options.get(code, b"") + value
    length = options.get(_LEASE_TIME, _FOREVER)
    expires = None if length == _FOREVER else obtained + int.from_bytes(length[:4], "big")
    return _offers(options.get(OPTION), obtained, expires)


def _options(data: bytes) -> dict[int, bytes]:
    """Return the options by code; the parts of a long option are joined (RFC 3396)."""
    options: dict[int, bytes] = {}
    at = 0
    while at + 1 < len(data) and data[at] != _END:
        if data[at] == _PAD:
            at += 1
            continue
        value = data[at + 2 : at + 2 + data[at + 1]]
        options[data[at]] = options.get(data[at], b"") + value
        at += 2 + data[at + 1]
    return options

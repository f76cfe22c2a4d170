"""Values of a trace line, read leniently: nothing here raises, whatever a line holds.

A trace may come from any source or an incomplete file, and machines may have sent anything.
So every value is checked, and cut to a maximum length. The judge does not use this module.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import msgspec

MAX_NAME = 200  # characters that are kept of a name, an id, a header or a path
MAX_RESOURCES = 1_000  # machines of one event that are read
LAST = 221_845_392_000.0  # seconds from 1970 to the year 9000, the latest time that is accepted


def decode(data: bytes) -> dict[str, Any] | None:
    """Return the line in these bytes, or None if it is not one."""
    try:
        line = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("kind"), str) else None


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def instant(value: object) -> float | None:
    """Return a time that a clock can show, or None."""
    seconds = number(value)
    return seconds if seconds is not None and 0 <= seconds <= LAST else None


def time_of(line: Mapping[str, Any]) -> float | None:
    return instant(line.get("t"))


def text(value: object, max_length: int) -> str:
    return value[:max_length] if isinstance(value, str) else ""


def name(value: object) -> str:
    """Return a short text without control characters."""
    return printable(text(value, MAX_NAME), MAX_NAME)


def names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(dict.fromkeys(item for raw in value[:MAX_RESOURCES] if (item := name(raw))))


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def printable(value: str, max_length: int = 80) -> str:
    """Cut a text to a length, and escape control characters."""
    cut = value if len(value) <= max_length else value[:max_length] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def content(line: Mapping[str, Any], key: str, max_length: int) -> bytes | None:
    """Return a body that was recorded as text or Base64; empty if missing, None if too long."""
    plain, encoded = line.get(key), line.get(f"{key}_base64")
    if isinstance(plain, str):
        if len(plain) > max_length:
            return None
        data = plain.encode("utf-8", "replace")
        return data if len(data) <= max_length else None
    if not isinstance(encoded, str):
        return b""
    if len(encoded) > max_length:
        return None
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return b""

"""Durations, times and lists as text for people, durations parsed from text, and text from unknown
sources made safe to print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any, TypeAlias

from forewarn.support.instants import to_datetime

Duration: TypeAlias = int  # microseconds

SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR

# From 1970 to the year 9000, in which every clock stops.
LONGEST: Duration = 221_845_392_000 * SECOND
MAX_LISTED = 10
MAX_DURATION_TEXT = 40  # characters of a duration
GUID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}")  # as the ids of events
_NUMBERS = re.compile(r"(\d{1,1000})", re.ASCII)


def in_words(duration: Duration) -> str:
    """Format a duration with its two largest units: `15 min`, `1 h 30 min`, `2.5 s`."""
    if duration < 0:
        return "-" + in_words(-duration)
    if duration < MINUTE:
        return f"{duration / SECOND:.3f}".rstrip("0").rstrip(".") + " s"
    parts = []
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def utc(at: int) -> str:
    """Format an instant, in microseconds since 1970, as `2026-11-15 05:23:03Z`."""
    try:
        time = to_datetime(at)
    except OverflowError:  # a clock may show anything
        return f"{at // SECOND} s after 1970"
    return time.strftime("%Y-%m-%d %H:%M:%SZ")


def in_zone(time: datetime, zone: tzinfo) -> str:
    """Format a time as in a zone and in UTC: `Sun 2026-11-15 12:13 CET (11:13Z)`."""
    local = time.astimezone(zone)
    in_utc = f"{time:%H:%MZ}" if local.date() == time.date() else f"{time:%Y-%m-%d %H:%MZ}"
    return f"{local:%a %Y-%m-%d %H:%M %Z} ({in_utc})"


def listing(names: Sequence[str]) -> str:
    """Join names, at most MAX_LISTED of them: `a, b and 3 more`."""
    if not names:
        return "nothing"
    shown = ", ".join(names[:MAX_LISTED])
    rest = len(names) - MAX_LISTED
    return f"{shown} and {rest} more" if rest > 0 else shown


def not_utf8(error: UnicodeDecodeError) -> str:
    """Describe bytes that are not text, such as a file of another kind or encoding."""
    return f"not UTF-8 text (byte {error.start + 1:,})"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 machine`, `1,200 machines`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def either_of(names: Sequence[str]) -> str:
    """Join names as alternatives: `a, b or c`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


# Characters that move a terminal's cursor, end a line or change the direction of writing; and lone
# surrogates, which cannot be encoded.
_CONTROL = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069"
    "\\ud800-\\udfff]"
)


def visible(text: str) -> str:
    """Escape the characters that could control a terminal, in text from an unknown source."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


# NUL, which PostgreSQL does not store as text, and lone surrogates, which have no bytes at all. One
# of them in a commit would fail all that are written together with it.
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


def unstorable(text: str) -> str:
    """Name the first character that not every engine can store; empty if there is none."""
    match = _UNSTORABLE.search(text)
    return f"U+{ord(match[0]):04X}" if match else ""


def storable(text: str) -> str:
    """Replace characters that cannot be stored, in text whose author cannot correct it."""
    return _UNSTORABLE.sub("\ufffd", text)


def escaped(json: str) -> str:
    """Escape the same characters in JSON, where the escapes are part of the syntax."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", json)


_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "min": MINUTE, "s": SECOND, "ms": SECOND // 1_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|d|h|m|s)", re.ASCII)


def parse_duration(text: str) -> Duration:
    """Parse `15m`, `1h30m`, `7d`, `30s`, ISO 8601 `PT5M`, or a plain number of seconds.

    Raises ValueError.
    """
    normalized = text.strip().lower()
    message = f"'{text[:40]}' is not a duration; write for example 90s, 15m, 1h30m or 7d"
    if len(normalized) > MAX_DURATION_TEXT:
        raise ValueError(message)
    if re.fullmatch(r"\d+(\.\d+)?", normalized, re.ASCII):
        normalized += "s"
    if iso := re.fullmatch(r"p(?:(\d+)d)?(?:t((?:\d+[hms])+))?", normalized, re.ASCII):
        normalized = "".join((f"{iso[1]}d" if iso[1] else "", iso[2] or ""))
    parts = _PART.findall(normalized)
    if not parts or _PART.sub("", normalized).strip():
        raise ValueError(message)
    length = round(sum(float(count) * _UNITS[unit] for count, unit in parts))
    if length > LONGEST:
        raise ValueError(f"'{text[:40]}' is too long; it goes beyond the year 9000")
    return length


def natural_key(name: str) -> tuple[Any, ...]:
    """Return a sort key in natural order: web_2 before web_10."""
    parts: list[Any] = _NUMBERS.split(name)
    parts[1::2] = map(int, parts[1::2])
    return tuple(parts), name

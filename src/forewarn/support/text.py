"""Durations, instants and lists, said to people, and durations as people say them; and what others
have said, so that it can be shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from forewarn.support.instants import to_datetime

Duration: TypeAlias = int  # microseconds

SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR

LONGEST: Duration = 221_845_392_000 * SECOND  # from 1970 to 9000; no clock ever goes so far
LISTED_AT_MOST = 10
MAX_WRITTEN = 40  # characters of a duration


def in_words(duration: Duration) -> str:
    """`15 min`, `1 h 30 min`, `2.5 s`: the two largest units that say something."""
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


def listing(names: Sequence[str]) -> str:
    """`a, b and 3 more`: never a screenful."""
    if not names:
        return "nothing"
    shown = ", ".join(names[:LISTED_AT_MOST])
    rest = len(names) - LISTED_AT_MOST
    return f"{shown} and {rest} more" if rest > 0 else shown


def either_of(names: Sequence[str]) -> str:
    """`a, b or c`"""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


# Characters that move a terminal's cursor, end a line or change the direction of writing; and lone
# surrogates, which cannot be encoded.
_CONTROL = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069"
    "\\ud800-\\udfff]"
)


def visible(text: str) -> str:
    """As it is, but that nothing in it acts upon the terminal: who knows who wrote it."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def escaped(json: str) -> str:
    """The same JSON, with what is left in it of the kind escaped."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


_UNITS = {"d": DAY, "h": HOUR, "m": MINUTE, "min": MINUTE, "s": SECOND, "ms": SECOND // 1_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|d|h|m|s)", re.ASCII)


def parse_duration(text: str) -> Duration:
    """`15m`, `1h30m`, `7d`, `30s`, ISO 8601 `PT5M`, or a plain number of seconds."""
    said = text.strip().lower()
    wrong = f"'{text[:40]}' is not a duration; write for example 90s, 15m, 1h30m or 7d"
    if len(said) > MAX_WRITTEN:
        raise ValueError(wrong)
    if re.fullmatch(r"\d+(\.\d+)?", said, re.ASCII):
        said += "s"
    if iso := re.fullmatch(r"p(?:(\d+)d)?(?:t((?:\d+[hms])+))?", said, re.ASCII):
        said = "".join((f"{iso[1]}d" if iso[1] else "", iso[2] or ""))
    parts = _PART.findall(said)
    if not parts or _PART.sub("", said).strip():
        raise ValueError(wrong)
    length = round(sum(float(count) * _UNITS[unit] for count, unit in parts))
    if length > LONGEST:
        raise ValueError(f"'{text[:40]}' is too long; no clock ever goes so far")
    return length

"""Finds the time at which a pasted document was seen, in the formats that logs use.

A time without a zone is taken as UTC, and one without a year is in the year of the document's
NotBefore. Neither a clock nor the locale of the process is consulted.
"""

from __future__ import annotations

import datetime
import re

LOOK_BACK = 3  # lines above a document in which its time is searched for
LOOK_BACK_HEADERS = 20  # lines above a document in which a Date header is searched for
MAX_DISTANCE = 90 * 86_400.0  # seconds between a NotBefore and the time at which it was seen

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_ISO = re.compile(
    rf"(?<!\d)(\d{{4}})[-/](\d\d)[-/](\d\d)[T _]{_CLOCK}\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?(?!\d)",
    re.ASCII,
)
_RFC = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (\d\d?)[ -](\w{3})[ -](\d{4}) (\d\d):(\d\d):(\d\d)"
    r"\s?(GMT|UTC|Z|[+-]\d{4})?",
    re.ASCII,
)
_SYSLOG = re.compile(
    r"\b([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)?(?!\d)", re.ASCII
)
_EPOCH = re.compile(r"(?<![\d.-])(1[4-9]\d{8})(?:\.(\d{1,9}))?(?![\d.])", re.ASCII)
_DATE_HEADER = re.compile(r"^[<*|\s]*date:\s*(.+)$", re.IGNORECASE)


def time_before(line_part: str, above: list[str], year: int | None) -> float | None:
    """Return the nearest time before a document: on its own line, or on the lines above."""
    if (t := last_time_in(line_part, year)) is not None:
        return t
    for line in list(reversed(above))[:LOOK_BACK]:
        if (t := last_time_in(line, year)) is not None:
            return t
    for line in list(reversed(above))[:LOOK_BACK_HEADERS]:
        if (header := _DATE_HEADER.match(line)) and (
            t := last_time_in(header[1], year)
        ) is not None:
            return t
    return None


def last_time_in(text: str, year: int | None) -> float | None:
    """Return the last time in a line."""
    times: list[tuple[int, float]] = []
    for match in _ISO.finditer(text):
        y, mo, d, h, mi, s, fraction, zone = match.groups()
        t = _time((int(y), int(mo), int(d), int(h), int(mi), int(s)), fraction, zone)
        times += [(match.start(), t)] if t is not None else []
    for match in _RFC.finditer(text):
        d, month, y, h, mi, s, zone = match.groups()
        if month.lower() in _MONTHS:
            mo = _MONTHS.index(month.lower()) + 1
            t = _time((int(y), mo, int(d), int(h), int(mi), int(s)), None, zone)
            times += [(match.start(), t)] if t is not None else []
    for match in _SYSLOG.finditer(text):
        month, d, h, mi, s = match.groups()
        if year is not None and month.lower() in _MONTHS:
            mo = _MONTHS.index(month.lower()) + 1
            t = _time((year, mo, int(d), int(h), int(mi), int(s)), None, None)
            times += [(match.start(), t)] if t is not None else []
    for match in _EPOCH.finditer(text):
        times.append((match.start(), float(f"{match[1]}.{match[2] or 0}")))
    return max(times)[1] if times else None


def _time(
    parts: tuple[int, int, int, int, int, int], fraction: str | None, zone: str | None
) -> float | None:
    try:
        t = datetime.datetime(*parts, tzinfo=datetime.UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    if zone and zone[0] in "+-":
        sign = -1 if zone[0] == "+" else 1
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        t += sign * (hours * 3600 + minutes * 60)
    return t + float(f"0.{fraction or 0}")

"""Format and parse times: RFC 1123 (English, two-digit day, literal GMT) and ISO 8601.

Times are whole seconds since 1970. Independent of the locale of the process and of any clock.
"""

from __future__ import annotations

import datetime
import re

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_RFC1123 = re.compile(r"(\w{3}), (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII)
_ISO8601 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", re.ASCII)


def rfc1123(seconds: int) -> str:
    t = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return (
        f"{_DAYS[t.weekday()]}, {t.day:02} {_MONTHS[t.month - 1]} {t.year:04}"
        f" {t.hour:02}:{t.minute:02}:{t.second:02} GMT"
    )


def iso8601(seconds: int) -> str:
    t = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{t.year:04}-{t.month:02}-{t.day:02}T{t.hour:02}:{t.minute:02}:{t.second:02}Z"


def parse_rfc1123(text: str) -> int:
    match = _RFC1123.fullmatch(text)
    if match is None or match[3] not in _MONTHS:
        raise ValueError(f"not an RFC 1123 time: {text!r}")
    month = _MONTHS.index(match[3]) + 1
    seconds = _seconds(
        int(match[4]), month, int(match[2]), int(match[5]), int(match[6]), int(match[7])
    )
    if rfc1123(seconds) != text:
        raise ValueError(f"the day of the week does not match the date: {text!r}")
    return seconds


def parse_iso8601(text: str) -> int:
    match = _ISO8601.fullmatch(text)
    if match is None:
        raise ValueError(f"not an ISO 8601 time in whole seconds and UTC: {text!r}")
    return _seconds(*(int(part) for part in match.groups()))


def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int:
    t = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    return int(t.timestamp())

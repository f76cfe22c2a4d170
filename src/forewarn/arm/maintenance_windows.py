"""The maintenance window of a configuration as Azure writes it, and as windows and blackouts here.

    {"startDateTime": "2026-12-01 22:00", "duration": "06:00",
     "timeZone": "W. Europe Standard Time", "recurEvery": "Week Saturday,Sunday"}

is the window `sat,sun 22:00-04:00 Europe/Berlin` and, since it begins on a date, the blackout
`1970-01-01 to 2026-12-01 22:00 Europe/Berlin`. What cannot be expressed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec

from forewarn.arm.errors import ArmError, invalid_parameter
from forewarn.arm.windows_time_zones import name_of, zone_of
from forewarn.core.time import MINUTE
from forewarn.core.windows.model import MINUTES_A_DAY, Blackout, Window
from forewarn.core.windows.syntax import FIRST_YEAR, LAST_YEAR, WEEKDAYS

PROPERTY = "properties.maintenanceWindow"
ALWAYS = date(FIRST_YEAR, 1, 1)  # a window that begins on this date has always been there
NEVER = "9999-12-31"  # begins the time at which a window expires that does not
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEKS = {"first": "1st", "second": "2nd", "third": "3rd", "fourth": "4th", "last": "last"}
WEEK_NAMES = {1: "First", 2: "Second", 3: "Third", 4: "Fourth", -1: "Last"}

_START = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d)(?::00)?", re.ASCII)
_DURATION = re.compile(r"(\d{1,2}):([0-5]\d)", re.ASCII)
_RECURS = re.compile(r"(\d{0,4}) ?(day|week|month)s?(?: (.+))?", re.ASCII)
_DAYS_OF_MONTH = re.compile(r"day\d{1,2}(?:,day\d{1,2})*", re.ASCII)
_DAY_OF_WEEK = re.compile(r"(\w+) (\w+)(?: offset(-?\d))?", re.ASCII)


class Schedule(msgspec.Struct, frozen=True):
    """A maintenance window, as texts of a fleet file."""

    window: str
    blackout: str  # until it begins; empty: it has always been there


def parse(shown: Mapping[str, Any]) -> Schedule:
    """Read a maintenance window of Azure. Raises ArmError, which names the property."""
    for name in shown:
        if name not in (
            "startDateTime",
            "expirationDateTime",
            "duration",
            "timeZone",
            "recurEvery",
        ):
            raise _invalid(name, "there is no such property")
    if not _text(shown, "expirationDateTime", default=NEVER).startswith(NEVER):
        raise _invalid(
            "expirationDateTime", "a window does not expire here; delete it when it is over"
        )
    start, opens = _start(_text(shown, "startDateTime"))
    closes = opens + _duration(_text(shown, "duration"), opens)
    hours = f"{_time(opens)}-{_time(closes if closes <= MINUTES_A_DAY else closes - MINUTES_A_DAY)}"
    zone = zone_of(name := _text(shown, "timeZone"))
    if zone is None:
        raise _invalid(
            "timeZone",
            f"unknown time zone '{name[:60]}'; write it as Windows does, such as"
            " 'W. Europe Standard Time', or like Europe/Berlin",
        )
    days = _days(_text(shown, "recurEvery"), start)
    return Schedule(
        " ".join(filter(None, (days, hours, zone))),
        "" if start == ALWAYS else _until(start, opens, zone),
    )


def shown_as(
    windows: Sequence[Window], blackouts: Sequence[Blackout]
) -> tuple[dict[str, str], Sequence[Blackout]] | None:
    """Return a maintenance window of Azure, and the blackouts that it does not express; None if the
    windows cannot be written as one of Azure's."""
    recurs = _recurs(windows[0]) if len(windows) == 1 else None
    if recurs is None:
        return None
    window, start = windows[0], ALWAYS
    for blackout in blackouts:
        day = blackout.text.split(" ")[2:3]  # of what `_until` has written
        first = _date(day[0]) if day else None
        if first is not None and blackout.text == _until(first, window.opens, window.zone):
            start, blackouts = first, [other for other in blackouts if other is not blackout]
            break
    return {
        "startDateTime": f"{start} {_time(window.opens)}",
        "duration": _time(window.length // MINUTE),
        "timeZone": name_of(window.zone),
        "recurEvery": recurs,
    }, blackouts


def _until(start: date, opens: int, zone: str) -> str:
    return f"{ALWAYS} to {start} {_time(opens)} {zone}"


def _text(shown: Mapping[str, Any], name: str, default: str = "") -> str:
    value = shown.get(name) or default
    if not isinstance(value, str) or not value.strip():
        raise _invalid(name, "this property is required, and must be a string")
    return " ".join(value.split())


def _start(text: str) -> tuple[date, int]:
    """Return the first day of a window, and when it opens, in minutes after midnight."""
    match = _START.fullmatch(text)
    day = _date(match[1]) if match else None
    if match is None or day is None or int(match[2]) > 23 or int(match[3]) > 59:
        raise _invalid(
            "startDateTime", f"'{text[:60]}' is not a time; write it like 2026-12-01 22:00"
        )
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise _invalid("startDateTime", f"the year must be from {FIRST_YEAR} to {LAST_YEAR}")
    return day, int(match[2]) * 60 + int(match[3])


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _duration(text: str, opens: int) -> int:
    """Return how long a window is open, in minutes."""
    match = _DURATION.fullmatch(text)
    minutes = int(match[1]) * 60 + int(match[2]) if match else 0
    if not 0 < minutes <= MINUTES_A_DAY:
        raise _invalid("duration", f"'{text[:60]}' is not a time up to 24:00; write it like 05:00")
    if minutes == MINUTES_A_DAY and opens:
        raise _invalid("duration", "a window of 24:00 has to begin at 00:00")
    return minutes


def _days(text: str, start: date) -> str:
    """Return the days on which a window opens."""
    text = re.sub(r" ?, ?", ",", text.lower())
    match = _RECURS.fullmatch(text)
    if match is None:
        raise _invalid(
            "recurEvery",
            f"'{text[:60]}' is not understood; write it like Day, Week Saturday,Sunday,"
            " Month day15 or Month Third Sunday",
        )
    number, unit, rest = match[1] or "1", match[2], match[3] or ""
    if int(number) != 1:
        raise _invalid(
            "recurEvery", f"a window can only recur every {unit}, not every {number} {unit}s"
        )
    if unit == "day" and not rest:
        return ""
    if unit == "week":
        names = rest.split(",") if rest else [DAY_NAMES[start.weekday()]]
        return ",".join(map(_weekday, names))
    if unit == "month" and not rest:
        return f"day {start.day}"
    if unit == "month" and _DAYS_OF_MONTH.fullmatch(rest):
        return f"day {rest.replace('day', '')}"
    weekday = _DAY_OF_WEEK.fullmatch(rest) if unit == "month" else None
    if weekday is None or weekday[1] not in WEEKS:
        raise _invalid("recurEvery", f"'{rest[:60]}' does not name days of a {unit}")
    if int(weekday[3] or 0):
        raise _invalid("recurEvery", "an offset from a day of the week is not possible here")
    return f"{WEEKS[weekday[1]]} {_weekday(weekday[2])}"


def _weekday(name: str) -> str:
    for full, short in zip(DAY_NAMES, WEEKDAYS, strict=True):
        if name.lower() in (full.lower(), short):
            return short
    raise _invalid("recurEvery", f"'{name[:60]}' is not a day of the week; write it like Saturday")


def _recurs(window: Window) -> str | None:
    weekdays = [DAY_NAMES[day] for day in window.weekdays]
    if window.days:
        return "Month " + ",".join(f"day{day}" for day in window.days)
    if not window.which:
        return f"Week {','.join(weekdays)}" if weekdays else "Day"
    weeks = [WEEK_NAMES[week] for week in window.which if week in WEEK_NAMES]
    if len(window.which) != len(weeks) or len(weeks) != 1 or len(weekdays) != 1:
        return None
    return f"Month {weeks[0]} {weekdays[0]}"


def _time(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _invalid(name: str, problem: str) -> ArmError:
    return invalid_parameter(f"{PROPERTY}.{name}: {problem}.")

"""The syntax of windows: `sat,sun 22:00-04:00 Europe/Berlin`, `2nd tue 02:00-06:00`,
`day 15 01:00-05:00`; and of blackouts: `2026-12-24`, `2026-12-20 to 2027-01-06 Europe/Berlin`,
`2026-12-24 18:00 to 2026-12-27 06:00`. Their meaning is `model.py`.
"""

from __future__ import annotations

import re
from datetime import date
from zoneinfo import ZoneInfoNotFoundError

from forewarn.core.windows.model import MINUTES_A_DAY, Blackout, Window, zone_of
from forewarn.core.windows.openings import first_shown
from forewarn.support.text import MINUTE, Duration, in_words

SHORTEST_WINDOW: Duration = 5 * MINUTE
MAX_WINDOW_TEXT = 120  # characters of one window
FIRST_YEAR, LAST_YEAR = 1970, 8999  # of a blackout

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WHICH = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": -1}
EXAMPLES = (
    "write days, hours and a zone: 'sat,sun 22:00-04:00 Europe/Berlin', 'mon-fri 09:00-17:00',"
    " '2nd tue 02:00-06:00 UTC', 'last sun 01:00-05:00', 'day 15 00:00-24:00'"
)

BLACKOUT_EXAMPLES = (
    "write a day or a range, and a zone: '2026-12-24', '2026-12-20 to 2027-01-06 Europe/Berlin',"
    " '2026-12-24 18:00 to 2026-12-27 06:00'"
)


def parse_window(text: str) -> Window:
    """Parse a window. Raises ValueError, which says what is wrong and what would be right."""
    words = text.split()
    normalized = " ".join(words)
    if not words or len(normalized) > MAX_WINDOW_TEXT:
        raise ValueError(f"'{normalized[:40]}' is not a window; {EXAMPLES}")
    positions = [
        i for i, word in enumerate(words) if re.fullmatch(r"[\d:]+-[\d:]+", word, re.ASCII)
    ]
    if len(positions) != 1 or len(words) > positions[0] + 2:
        raise ValueError(f"'{normalized}' is not a window; {EXAMPLES}")
    days, hours, zone = words[: positions[0]], words[positions[0]], words[positions[0] + 1 :]
    opens, closes = _hours(hours, normalized)
    window = Window(
        text=normalized,
        opens=opens,
        closes=closes,
        zone=_zone(zone[0], normalized) if zone else "UTC",
        **_days(days, normalized),
    )
    if window.length < SHORTEST_WINDOW:
        raise ValueError(
            f"'{normalized}' is open for {in_words(window.length)}; at least"
            f" {in_words(SHORTEST_WINDOW)} is needed, since after an outage nothing starts for a"
            " while"
        )
    return window


def parse_blackout(text: str) -> Blackout:
    """Parse a blackout. Raises ValueError, which says what is wrong and what would be right."""
    normalized = " ".join(text.split())
    match = re.fullmatch(
        r"(?P<first>\d{4}-\d\d-\d\d)(?: (?P<begins>\d{1,2}:\d\d))?"
        r"(?: to (?P<last>\d{4}-\d\d-\d\d)(?: (?P<ends>\d{1,2}:\d\d))?)?"
        r"(?: (?P<zone>(?!to$)[^\d ]\S*))?",
        normalized,
        re.ASCII,
    )
    if match is None or len(normalized) > MAX_WINDOW_TEXT:
        raise ValueError(f"'{normalized[:40]}' is not a blackout; {BLACKOUT_EXAMPLES}")
    zone = zone_of(_zone(match["zone"], normalized) if match["zone"] else "UTC")
    first = _date(match["first"], normalized)
    last = _date(match["last"] or match["first"], normalized)
    begins = _minutes(match["begins"] or "00:00")
    ends = _minutes(match["ends"] or "24:00")
    if begins is None or ends is None:
        raise ValueError(f"'{normalized}': a time of day is from 00:00 to 24:00")
    blackout = Blackout(
        begins=first_shown(first, begins, zone), ends=first_shown(last, ends, zone), text=normalized
    )
    if blackout.ends <= blackout.begins:
        raise ValueError(f"'{normalized}' ends before it begins")
    return blackout


def _date(text: str, blackout: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{blackout}': there is no day {text}") from None
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise ValueError(f"'{blackout}': a year is from {FIRST_YEAR} to {LAST_YEAR}")
    return day


def _hours(text: str, window: str) -> tuple[int, int]:
    first, _, second = text.partition("-")
    opens, closes = _minutes(first), _minutes(second)
    if opens is None or closes is None or opens == MINUTES_A_DAY:
        raise ValueError(f"'{window}': '{text}' are not valid hours; write them like 22:00-04:00")
    if opens == closes:
        raise ValueError(
            f"'{window}': it closes at the time at which it opens; for a whole day write"
            " 00:00-24:00, or leave the window out"
        )
    return opens, closes


def _minutes(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,2}):(\d{2})", text, re.ASCII)
    if match is None or int(match[2]) > 59:
        return None
    minutes = int(match[1]) * 60 + int(match[2])
    return minutes if minutes <= MINUTES_A_DAY else None


def _days(words: list[str], window: str) -> dict[str, tuple[int, ...]]:
    lowered = [word.lower() for word in words]
    match lowered:
        case [] | ["daily"]:
            return {}
        case ["day", numbers]:
            return {"days": _numbers(numbers, window)}
        case [days]:
            return {"weekdays": _weekdays(days, window)}
        case [which, days] if all(part in WHICH for part in which.split(",")):
            chosen = tuple(sorted({WHICH[part] for part in which.split(",")}))
            return {"which": chosen, "weekdays": _weekdays(days, window)}
    raise ValueError(f"'{window}': '{' '.join(words)}' are not valid days; {EXAMPLES}")


def _weekdays(text: str, window: str) -> tuple[int, ...]:
    weekdays: set[int] = set()
    for part in text.split(","):
        first, dash, last = (_weekday(word) for word in part.partition("-"))
        if first is None or (dash is not None) or ("-" in part and last is None):
            raise ValueError(
                f"'{window}': '{part}' is not a day of the week; use {', '.join(WEEKDAYS)},"
                " or a range such as mon-fri"
            )
        until = first if last is None else last
        weekdays |= {(first + i) % 7 for i in range((until - first) % 7 + 1)}
    return tuple(sorted(weekdays))


def _weekday(word: str) -> int | None:
    """Return the number of a weekday such as `mon` or `monday`; Monday is 0."""
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for names in (WEEKDAYS, full):
        if word in names:
            return names.index(word)
    return None


def _numbers(text: str, window: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(re.fullmatch(r"\d{1,2}", part, re.ASCII) and 1 <= int(part) <= 31 for part in parts):
        raise ValueError(
            f"'{window}': '{text}' is not a day of the month; write 'day 15' or 'day 1,15', up to"
            " 31"
        )
    return tuple(sorted({int(part) for part in parts}))


def _zone(name: str, window: str) -> str:
    try:
        zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        try:
            zone_of("Europe/Berlin")
        except ZoneInfoNotFoundError:
            raise ValueError(
                f"'{window}': this system has no time zone data; install the package 'tzdata',"
                " or write the hours in UTC"
            ) from None
        raise ValueError(
            f"'{window}': unknown time zone '{name}'; write one like Europe/Berlin or UTC"
        ) from None
    return name

"""Windows as people write them: `sat,sun 22:00-04:00 Europe/Berlin`, `2nd tue 02:00-06:00`,
`day 15 01:00-05:00`. What they mean is `windows.py`.
"""

from __future__ import annotations

import re
from zoneinfo import ZoneInfoNotFoundError

from forewarn.core.rollouts.windows import MINUTES_A_DAY, Window, zone_of
from forewarn.core.time import MINUTE, Duration
from forewarn.support.text import in_words

SHORTEST_WINDOW: Duration = 5 * MINUTE
MAX_WINDOW_WORDS = 120  # characters of one window
MAX_WINDOWS = 20  # of one rollout

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WHICH = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": -1}
RIGHT = (
    "write days, hours and a zone: 'sat,sun 22:00-04:00 Europe/Berlin', 'mon-fri 09:00-17:00',"
    " '2nd tue 02:00-06:00 UTC', 'last sun 01:00-05:00', 'day 15 00:00-24:00'"
)


def parse_window(text: str) -> Window:
    """Raises ValueError, which says what is wrong and what would be right."""
    words = text.split()
    said = " ".join(words)
    if not words or len(said) > MAX_WINDOW_WORDS:
        raise ValueError(f"'{said[:40]}' is no window; {RIGHT}")
    found = [i for i, word in enumerate(words) if re.fullmatch(r"[\d:]+-[\d:]+", word, re.ASCII)]
    if len(found) != 1 or len(words) > found[0] + 2:
        raise ValueError(f"'{said}' is no window; {RIGHT}")
    days, hours, rest = words[: found[0]], words[found[0]], words[found[0] + 1 :]
    opens, closes = _hours(hours, said)
    window = Window(
        said=said,
        opens=opens,
        closes=closes,
        zone=_zone(rest[0], said) if rest else "UTC",
        **_days(days, said),
    )
    if window.length < SHORTEST_WINDOW:
        raise ValueError(
            f"'{said}' is open for {in_words(window.length)}; at least {in_words(SHORTEST_WINDOW)}"
            " is needed, since after an outage nothing starts for a while"
        )
    return window


def _hours(text: str, said: str) -> tuple[int, int]:
    first, _, second = text.partition("-")
    opens, closes = _minutes(first), _minutes(second)
    if opens is None or closes is None or opens == MINUTES_A_DAY:
        raise ValueError(f"'{said}': '{text}' are no hours; write them like 22:00-04:00")
    if opens == closes:
        raise ValueError(
            f"'{said}': it closes when it opens; for a whole day write 00:00-24:00,"
            " or leave the window out"
        )
    return opens, closes


def _minutes(text: str) -> int | None:
    match = re.fullmatch(r"(\d{1,2}):(\d{2})", text, re.ASCII)
    if match is None or int(match[2]) > 59:
        return None
    minutes = int(match[1]) * 60 + int(match[2])
    return minutes if minutes <= MINUTES_A_DAY else None


def _days(words: list[str], said: str) -> dict[str, tuple[int, ...]]:
    lowered = [word.lower() for word in words]
    match lowered:
        case [] | ["daily"]:
            return {}
        case ["day", numbers]:
            return {"days": _numbers(numbers, said)}
        case [days]:
            return {"weekdays": _weekdays(days, said)}
        case [which, days] if all(part in WHICH for part in which.split(",")):
            chosen = tuple(sorted({WHICH[part] for part in which.split(",")}))
            return {"which": chosen, "weekdays": _weekdays(days, said)}
    raise ValueError(f"'{said}': '{' '.join(words)}' are no days; {RIGHT}")


def _weekdays(text: str, said: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = (_weekday(word) for word in part.partition("-"))
        if first is None or (dash is not None) or ("-" in part and last is None):
            raise ValueError(
                f"'{said}': '{part}' is no day of the week; there are {', '.join(WEEKDAYS)},"
                " and mon-fri"
            )
        until = first if last is None else last
        found |= {(first + i) % 7 for i in range((until - first) % 7 + 1)}
    return tuple(sorted(found))


def _weekday(word: str) -> int | None:
    """`mon` or `monday`."""
    full = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    for known in (WEEKDAYS, full):
        if word in known:
            return known.index(word)
    return None


def _numbers(text: str, said: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(re.fullmatch(r"\d{1,2}", part, re.ASCII) and 1 <= int(part) <= 31 for part in parts):
        raise ValueError(
            f"'{said}': '{text}' is no day of the month; write 'day 15' or 'day 1,15', up to 31"
        )
    return tuple(sorted({int(part) for part in parts}))


def _zone(name: str, said: str) -> str:
    try:
        zone_of(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        try:
            zone_of("Europe/Berlin")
        except ZoneInfoNotFoundError:
            raise ValueError(
                f"'{said}': this system has no time zone data; install the package 'tzdata',"
                " or write the hours in UTC"
            ) from None
        raise ValueError(
            f"'{said}': no time zone '{name}'; write one like Europe/Berlin or UTC"
        ) from None
    return name

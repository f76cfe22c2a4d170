"""Times and durations as Azure Resource Manager writes them."""

from __future__ import annotations

import re

from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Duration, Time
from forewarn.support.instants import to_datetime

_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,4})D)?"
    r"(?:T(?:(?P<hours>\d{1,5})H)?(?:(?P<minutes>\d{1,6})M)?(?:(?P<seconds>\d{1,7})S)?)?",
    re.ASCII,
)


def moment(at: Time) -> str:
    return to_datetime(at).isoformat().replace("+00:00", "Z")


def iso_duration(duration: Duration) -> str:
    """Return a duration in ISO 8601, such as PT5M."""
    minutes, seconds = divmod(duration // SECOND, 60)
    text = (f"{minutes}M" if minutes else "") + (f"{seconds}S" if seconds or not minutes else "")
    return f"PT{text}"


def parse_iso_duration(text: str) -> Duration | None:
    """Return a duration that is written in ISO 8601; None if it is not."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    units = {"days": DAY, "hours": HOUR, "minutes": MINUTE, "seconds": SECOND}
    return sum(int(match[name] or 0) * unit for name, unit in units.items())

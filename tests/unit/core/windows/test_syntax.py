"""How windows and blackouts are written."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from forewarn.core.time import Time
from forewarn.core.windows.syntax import parse_blackout, parse_window
from forewarn.support.instants import from_datetime


def at(text: str, zone: str = "UTC") -> Time:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a window"),
        ("sat", "is not a window"),
        ("sat 22:00", "is not a window"),
        ("sat 22:00-23:00 UTC more", "is not a window"),
        ("xyz 22:00-23:00", "'xyz' is not a day of the week"),
        ("mon- 22:00-23:00", "'mon-' is not a day of the week"),
        ("6th mon 22:00-23:00", "'6th mon' are not valid days"),
        ("day 0 22:00-23:00", "'0' is not a day of the month"),
        ("day 32 22:00-23:00", "'32' is not a day of the month"),
        ("sat 22:00-25:00", "are not valid hours"),
        ("sat 22:60-23:00", "are not valid hours"),
        ("sat 24:00-01:00", "are not valid hours"),
        ("sat 22:00-22:00", "closes at the time at which it opens"),
        ("sat 22:00-22:04", "at least 5 min"),
        ("sat 22:00-23:00 Mars/Phobos", "unknown time zone 'Mars/Phobos'"),
        ("sat 22:00-23:00 ../../etc/passwd", "unknown time zone"),
        ("sat " * 50, "is not a window"),
    ],
)
def test_an_invalid_window_is_refused_with_what_would_be_valid(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"write|needed|use ") as caught:
        parse_window(text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "begins", "ends", "zone"),
    [
        ("2026-12-24", "2026-12-24 00:00", "2026-12-25 00:00", "UTC"),
        (
            "2026-12-20  to 2027-01-06 Europe/Berlin",
            "2026-12-20 00:00",
            "2027-01-07 00:00",
            "Europe/Berlin",
        ),
        ("2026-12-24 18:00 to 2026-12-27 06:00", "2026-12-24 18:00", "2026-12-27 06:00", "UTC"),
        ("2026-12-24 18:00", "2026-12-24 18:00", "2026-12-25 00:00", "UTC"),
    ],
)
def test_blackouts_are_read_and_written(text: str, begins: str, ends: str, zone: str) -> None:
    blackout = parse_blackout(text)
    assert (blackout.begins, blackout.ends) == (at(begins, zone), at(ends, zone))
    assert blackout.text == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a blackout"),
        ("tomorrow", "is not a blackout"),
        ("2026-12-24 to", "is not a blackout"),
        ("2026-13-01", "there is no day 2026-13-01"),
        ("2027-02-29 to 2027-03-01", "there is no day 2027-02-29"),
        ("2026-12-24 to 2026-12-20", "ends before it begins"),
        ("2026-12-24 25:00", "a time of day is from 00:00 to 24:00"),
        ("2026-12-24 Mars/Base", "unknown time zone 'Mars/Base'"),
        ("9999-12-31", "a year is from 1970 to 8999"),
    ],
)
def test_an_invalid_blackout_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_blackout(text)

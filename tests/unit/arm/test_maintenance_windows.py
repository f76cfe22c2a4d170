"""Maintenance windows of Azure, as windows and blackouts."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.arm.errors import ArmError
from forewarn.arm.maintenance_windows import parse, shown_as
from forewarn.core.windows.syntax import parse_blackout, parse_window


def window(recurs: str, start: str = "2026-12-01 22:00", **changed: Any) -> dict[str, Any]:
    return {
        "startDateTime": start,
        "duration": "05:00",
        "timeZone": "W. Europe Standard Time",
        "recurEvery": recurs,
        **changed,
    }


@pytest.mark.parametrize(
    ("recurs", "days"),
    [
        ("Day", ""),
        ("1Day", ""),
        ("Week", "tue "),  # as 2026-12-01 is
        ("Week Saturday,Sunday", "sat,sun "),
        ("1week Mon, tue", "mon,tue "),
        ("Month", "day 1 "),
        ("Month day23,day24", "day 23,24 "),
        ("Month First Sunday", "1st sun "),
        ("1Month Fourth Monday", "4th mon "),
        ("month last sunday offset0", "last sun "),
    ],
)
def test_recurrences_are_read_and_shown(recurs: str, days: str) -> None:
    schedule = parse(window(recurs))
    assert schedule.window == f"{days}22:00-03:00 Europe/Berlin"
    assert schedule.blackout == "1970-01-01 to 2026-12-01 22:00 Europe/Berlin"
    parsed = [parse_window(schedule.window)], [parse_blackout(schedule.blackout)]
    again = shown_as(*parsed)
    assert again is not None
    assert again[1] == []
    assert parse(again[0]) == schedule


@pytest.mark.parametrize(
    ("start", "duration", "hours"),
    [
        ("2026-12-01 00:00", "24:00", "00:00-24:00"),
        ("2026-12-01 22:00", "02:00", "22:00-24:00"),
        ("2026-12-01T22:30:00", "2:15", "22:30-00:45"),
        ("2026-12-01 09:00", "23:59", "09:00-08:59"),
    ],
)
def test_a_window_lasts_at_most_a_day(start: str, duration: str, hours: str) -> None:
    schedule = parse(window("Day", start, duration=duration, timeZone="UTC"))
    assert schedule.window == f"{hours} UTC"
    again = shown_as([parse_window(schedule.window)], [parse_blackout(schedule.blackout)])
    assert again is not None
    assert again[0]["startDateTime"] == start.replace("T", " ")[:16]
    assert parse(again[0]) == schedule


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startDateTime", "tomorrow"),
        ("startDateTime", "2026-02-30 22:00"),
        ("startDateTime", "2026-12-01 24:00"),
        ("startDateTime", "9999-01-01 00:00"),
        ("startDateTime", 5),
        ("startDateTime", None),
        ("expirationDateTime", "2027-12-01 22:00"),
        ("duration", "00:00"),
        ("duration", "24:00"),  # but it begins at 22:00
        ("duration", "25:00"),
        ("duration", "PT5H"),
        ("duration", ""),
        ("timeZone", "Mars Standard Time"),
        ("timeZone", None),
        ("recurEvery", "3Days"),
        ("recurEvery", "2Weeks Sunday"),
        ("recurEvery", "2Months"),
        ("recurEvery", "Week Someday"),
        ("recurEvery", "Month Fifth Sunday"),
        ("recurEvery", "Month Last Sunday Offset-3"),
        ("recurEvery", "Month day-1"),
        ("recurEvery", "Day Sunday"),
        ("recurEvery", "Year"),
        ("recurEvery", "day" * 1000),
        ("colour", "red"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ArmError) as refused:
        parse({**window("Day"), name: value})
    assert refused.value.code == "InvalidParameter"
    assert refused.value.message.startswith(f"properties.maintenanceWindow.{name}: ")
    assert len(refused.value.message) < 250


def test_a_window_without_expiration_may_have_the_last_date() -> None:
    never = window("Day", expirationDateTime="9999-12-31 23:59:59")
    assert parse(never) == parse(window("Day"))


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["sat 22:00-04:00", "sun 22:00-04:00"],
        ["5th sun 01:00-05:00"],
        ["1st,3rd sun 01:00-05:00"],
        ["1st sat,sun 01:00-05:00"],
    ],
)
def test_windows_that_azure_cannot_express_are_not_shown(texts: list[str]) -> None:
    assert shown_as([parse_window(text) for text in texts], []) is None


def test_a_window_without_a_beginning_starts_in_1970() -> None:
    other = parse_blackout("2026-12-24 to 2026-12-26")
    shown = shown_as([parse_window("mon-fri 01:00-05:00 Europe/Vienna")], [other])
    assert shown is not None
    assert shown[0] == {
        "startDateTime": "1970-01-01 01:00",
        "duration": "04:00",
        "timeZone": "Europe/Vienna",
        "recurEvery": "Week Monday,Tuesday,Wednesday,Thursday,Friday",
    }
    assert shown[1] == [other]
    assert parse(shown[0]).blackout == ""

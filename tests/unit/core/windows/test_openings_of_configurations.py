"""When maintenance may start: windows and blackouts of several configurations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Time
from forewarn.core.windows import openings
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Span
from forewarn.core.windows.openings import LOOK_AHEAD, is_open, last_opening, next_open
from forewarn.core.windows.syntax import parse_blackout, parse_window
from forewarn.support.instants import from_datetime, to_datetime


def at(text: str, zone: str = "UTC") -> Time:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def configuration(*windows: str, blackouts: tuple[str, ...] = ()) -> MaintenanceConfiguration:
    return MaintenanceConfiguration(
        name="c",
        windows=tuple(map(parse_window, windows)),
        blackouts=tuple(map(parse_blackout, blackouts)),
    )


NIGHTS = configuration("22:00-04:00")
EARLY = configuration("02:00-08:00")
NOON = configuration("12:00-13:00")


def test_all_configurations_have_to_allow_it() -> None:
    assert next_open((NIGHTS, EARLY), at("2027-01-15 12:00")) == Span(
        at("2027-01-16 02:00"), at("2027-01-16 04:00")
    )
    assert next_open((NIGHTS, NOON), at("2027-01-15 12:00")) is None


def test_without_configurations_it_may_start_at_any_time() -> None:
    assert next_open((), 5) == Span(0)
    assert is_open((), 5)


def test_one_of_the_windows_of_a_configuration_is_enough() -> None:
    either = configuration("22:00-04:00", "12:00-13:00")
    assert next_open((either,), at("2027-01-15 11:00")) == Span(
        at("2027-01-15 12:00"), at("2027-01-15 13:00")
    )


def test_a_blackout_ends_a_window_early_and_a_window_opens_when_it_is_over() -> None:
    limited = configuration(
        "22:00-04:00", blackouts=("2027-01-15 23:00 to 2027-01-16 03:00", "2027-01-17")
    )
    first = next_open((limited,), at("2027-01-15 12:00"))
    assert first == Span(at("2027-01-15 22:00"), at("2027-01-15 23:00"))
    assert next_open((limited,), at("2027-01-15 23:00")) == Span(
        at("2027-01-16 03:00"), at("2027-01-16 04:00")
    )
    assert next_open((limited,), at("2027-01-17 00:00")) == Span(
        at("2027-01-18 00:00"), at("2027-01-18 04:00")
    )


def test_a_search_that_fails_is_not_repeated_until_something_could_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Time] = []
    search = openings._next_open

    def counted(configurations: Any, at: Time, until: Time) -> Span | None:
        asked.append(at)
        return search(configurations, at, until)

    monkeypatch.setattr(openings, "_next_open", counted)
    monkeypatch.setattr(openings, "_searched", {})
    begin = at("2027-01-15 12:00")
    for instant in (begin, begin + HOUR, begin + DAY - 1):
        assert next_open((NIGHTS, NOON), instant) is None
    assert asked == [begin]
    assert next_open((NIGHTS, NOON), begin + DAY) is None
    assert next_open((NIGHTS, NOON), begin) is None  # earlier than what was asked for
    assert asked == [begin, begin + DAY, begin]


def test_what_was_found_is_forgotten_when_it_is_right_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = configuration(
        "22:00-04:00", blackouts=("2027-01-15 23:00 to 2027-01-16 03:00", "2027-01-17")
    )
    begin = at("2027-01-15 12:00")
    known: Any = {}
    for instant in range(begin, begin + 4 * DAY, 30 * MINUTE):
        monkeypatch.setattr(openings, "_searched", known)
        found = next_open((limited,), instant)
        monkeypatch.setattr(openings, "_searched", {})
        assert found == next_open((limited,), instant)


@pytest.mark.parametrize("late", [0, SECOND, DAY, DAY + SECOND])
def test_an_opening_counts_up_to_the_end_of_the_look_ahead_exactly(late: Time) -> None:
    begin = at("2027-01-15 12:00")
    long = Blackout(begins=0, ends=begin + LOOK_AHEAD + late)
    dark = MaintenanceConfiguration(name="c", blackouts=(long,))
    for instant in (begin, begin + HOUR, begin + DAY, begin + 2 * DAY):
        span = next_open((dark,), instant)
        assert (span is not None) == (long.ends <= instant + LOOK_AHEAD)
        assert span is None or span.opens == long.ends


def test_a_blackout_beyond_the_look_ahead_leaves_no_time() -> None:
    forever = MaintenanceConfiguration(
        name="c", blackouts=(Blackout(begins=0, ends=2 * LOOK_AHEAD + DAY),)
    )
    assert next_open((forever,), DAY) is None


@pytest.mark.parametrize(
    ("evening", "hours"),
    [("2027-03-27 12:00", 5), ("2027-10-30 12:00", 7)],  # the clocks change in these nights
)
def test_a_night_in_which_the_clocks_change_is_shorter_or_longer(evening: str, hours: int) -> None:
    nights = configuration("22:00-04:00 Europe/Berlin")
    span = next_open((nights,), at(evening))
    assert span is not None
    assert span.closes is not None
    assert span.closes - span.opens == hours * HOUR
    for instant in range(span.opens - DAY // 2, span.closes + DAY // 2, 10 * MINUTE):
        local = to_datetime(instant).astimezone(ZoneInfo("Europe/Berlin"))
        assert is_open((nights,), instant) == (local.hour >= 22 or local.hour < 4)


def test_the_last_opening_before_a_deadline_is_found() -> None:
    now = at("2027-01-15 12:00")
    assert last_opening((NIGHTS,), now, at("2027-01-18 12:00")) == at("2027-01-17 22:00")
    inside = at("2027-01-18 01:00")
    assert last_opening((NIGHTS,), now, inside) == inside
    assert last_opening((NIGHTS,), now, at("2027-01-15 13:00")) is None


def test_instants_are_those_of_utc() -> None:
    assert at("2027-01-15 12:00") == from_datetime(datetime(2027, 1, 15, 12, tzinfo=UTC))
    assert at("2027-01-15 12:00") % SECOND == 0

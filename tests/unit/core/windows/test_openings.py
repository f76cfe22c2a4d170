"""When windows open and close, and the days on which clocks are changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.core.time import DAY, HOUR, MINUTE, SECOND
from forewarn.core.windows.model import Span, Window
from forewarn.core.windows.openings import next_span, spans
from forewarn.core.windows.syntax import WEEKDAYS, parse_window
from forewarn.support.instants import to_datetime
from helpers.examples import examples

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def opening(window: str, when: str) -> tuple[str, str]:
    """When it is open next, as the clocks in UTC show it."""
    span = next_span([parse_window(window)], at(when))
    assert span is not None
    assert span.closes is not None
    return shown(span.opens), shown(span.closes)


def shown(instant: int) -> str:
    return to_datetime(instant).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("window", "when", "opens", "closes"),
    [
        # Friday, 15 January 2027.
        ("daily 10:00-12:00", "2027-01-15T08:00Z", "2027-01-15 10:00", "2027-01-15 12:00"),
        ("10:00-12:00", "2027-01-15T12:00Z", "2027-01-16 10:00", "2027-01-16 12:00"),
        ("10:00-12:00", "2027-01-15T11:59Z", "2027-01-15 10:00", "2027-01-15 12:00"),
        ("sat 22:00-04:00", "2027-01-15T08:00Z", "2027-01-16 22:00", "2027-01-17 04:00"),
        ("sat 22:00-04:00", "2027-01-17T03:59Z", "2027-01-16 22:00", "2027-01-17 04:00"),
        ("mon-fri 09:00-17:00", "2027-01-15T17:00Z", "2027-01-18 09:00", "2027-01-18 17:00"),
        ("fri-mon 09:00-17:00", "2027-01-15T17:00Z", "2027-01-16 09:00", "2027-01-16 17:00"),
        ("2nd tue 02:00-06:00 UTC", "2027-01-15T08:00Z", "2027-02-09 02:00", "2027-02-09 06:00"),
        ("last sun 01:00-05:00", "2027-01-15T08:00Z", "2027-01-31 01:00", "2027-01-31 05:00"),
        (
            "1st,last Sunday 01:00-05:00",
            "2027-02-01T00:00Z",
            "2027-02-07 01:00",
            "2027-02-07 05:00",
        ),
        ("5th mon 01:00-05:00", "2027-01-15T08:00Z", "2027-03-29 01:00", "2027-03-29 05:00"),
        ("day 31 01:00-05:00", "2027-02-01T00:00Z", "2027-03-31 01:00", "2027-03-31 05:00"),
        ("day 1,15 00:00-24:00", "2027-01-16T00:00Z", "2027-02-01 00:00", "2027-02-02 00:00"),
        (
            "sat 22:00-04:00 Europe/Berlin",
            "2027-01-15T08:00Z",
            "2027-01-16 21:00",
            "2027-01-17 03:00",
        ),
    ],
)
def test_a_window_opens_when_it_says(window: str, when: str, opens: str, closes: str) -> None:
    assert opening(window, when) == (opens, closes)


@pytest.mark.parametrize(
    ("window", "opens", "closes"),
    [
        # In Berlin, on 28 March 2027, 02:00 is followed by 03:00, at 01:00 UTC.
        ("sun 02:30-05:00 Europe/Berlin", "2027-03-28 01:00", "2027-03-28 03:00"),
        ("sun 01:00-02:30 Europe/Berlin", "2027-03-28 00:00", "2027-03-28 01:00"),
        ("sun 00:00-24:00 Europe/Berlin", "2027-03-27 23:00", "2027-03-28 22:00"),
        # The hour that is left out has no window; the next is a week later.
        ("sun 02:10-02:50 Europe/Berlin", "2027-04-04 00:10", "2027-04-04 00:50"),
    ],
)
def test_on_the_day_that_lacks_an_hour_the_window_is_shorter(
    window: str, opens: str, closes: str
) -> None:
    assert opening(window, "2027-03-27T12:00Z") == (opens, closes)


@pytest.mark.parametrize(
    ("window", "opens", "closes"),
    [
        # In Berlin, on 31 October 2027, 02:00 to 03:00 comes twice; first from 00:00 UTC.
        ("sun 02:30-05:00 Europe/Berlin", "2027-10-31 00:30", "2027-10-31 04:00"),
        ("sun 01:00-02:30 Europe/Berlin", "2027-10-30 23:00", "2027-10-31 00:30"),
        ("sun 02:10-02:50 Europe/Berlin", "2027-10-31 00:10", "2027-10-31 00:50"),
        ("sun 00:00-24:00 Europe/Berlin", "2027-10-30 22:00", "2027-10-31 23:00"),  # 25 hours
    ],
)
def test_on_the_day_that_has_an_hour_twice_the_first_counts(
    window: str, opens: str, closes: str
) -> None:
    assert opening(window, "2027-10-30T12:00Z") == (opens, closes)


def test_windows_that_follow_on_each_other_are_one() -> None:
    windows = [parse_window("fri 22:00-24:00"), parse_window("sat 00:00-04:00")]
    span = next_span(windows, at("2027-01-15T08:00Z"))
    assert span == Span(at("2027-01-15T22:00Z"), at("2027-01-16T04:00Z"))


def test_a_window_that_is_always_open_has_an_end_all_the_same() -> None:
    now = at("2027-01-15T08:00Z")
    span = next_span([parse_window("daily 00:00-24:00")], now)
    assert span is not None
    assert span.closes is not None
    assert span.opens <= now
    assert 30 * DAY < span.closes - now < 40 * DAY


def test_a_window_in_an_hour_that_never_comes_never_opens() -> None:
    """On the last Sunday of March clocks in Berlin never show it; in other months they do."""
    window = Window(text="", opens=130, closes=170, days=(28,), zone="Europe/Berlin")
    found = [
        s for s in spans([window], at("2027-03-20T00:00Z")) if s.opens < at("2027-05-01T00:00Z")
    ]
    assert [shown(span.opens) for span in found] == ["2027-04-28 00:10"]


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kind = draw(st.sampled_from(["daily", "week", "nth", "month"]))
    days = {
        "daily": st.just("daily"),
        "week": st.sets(st.sampled_from(WEEKDAYS), min_size=1).map(",".join),
        "nth": st.tuples(
            st.sampled_from(["1st", "2nd", "3rd", "4th", "last"]), st.sampled_from(WEEKDAYS)
        ).map(" ".join),
        "month": st.integers(1, 31).map(lambda day: f"day {day}"),
    }
    opens = draw(st.integers(0, 23 * 60 + 59))
    closes = (opens + draw(st.integers(5, 24 * 60 - 1))) % (24 * 60)
    hours = f"{opens // 60:02}:{opens % 60:02}-{closes // 60:02}:{closes % 60:02}"
    return parse_window(f"{draw(days[kind])} {hours} {draw(st.sampled_from(ZONES))}")


# Around the days on which clocks are changed, more often than not.
INSTANTS = st.one_of(
    st.integers(at("2027-03-25T00:00Z") // SECOND, at("2027-04-06T00:00Z") // SECOND),
    st.integers(at("2027-10-25T00:00Z") // SECOND, at("2027-11-10T00:00Z") // SECOND),
    st.integers(at("2026-01-01T00:00Z") // SECOND, at("2030-01-01T00:00Z") // SECOND),
).map(lambda seconds: seconds * SECOND)


@given(windows(), INSTANTS)
@settings(max_examples=examples(60), deadline=None)
def test_a_window_is_open_exactly_from_when_clocks_show_its_opening_until_its_closing(
    window: Window, start: int
) -> None:
    """Told from the words alone: minute by minute, what do the clocks and the calendar show?"""
    found = list(_read_off(window, start, start + 3 * DAY))
    reported = []
    for span in spans([window], start):
        if span.opens >= start + 2 * DAY:
            break
        if span.opens >= start:
            reported.append(span)
    assert reported == [span for span in found if start <= span.opens < start + 2 * DAY]


def _read_off(window: Window, start: int, end: int) -> list[Span]:
    zone = ZoneInfo(window.zone)
    begin = (start - 3 * DAY) // MINUTE * MINUTE
    clock = [
        (instant, (EPOCH + timedelta(microseconds=instant)).astimezone(zone).replace(tzinfo=None))
        for instant in range(begin, end + 3 * DAY, MINUTE)
    ]
    found = []
    day = clock[0][1].date() + timedelta(days=1)
    while day < clock[-1][1].date() - timedelta(days=2):
        if _opens_on(window, day):
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001
            opens = midnight + timedelta(minutes=window.opens)
            closes = midnight + timedelta(minutes=window.closes)
            if closes <= opens:
                closes += timedelta(days=1)
            first = next(instant for instant, wall in clock if wall >= opens)
            last = next(instant for instant, wall in clock if wall >= closes)
            if first < last:
                found.append(Span(first, last))
        day += timedelta(days=1)
    return found


def _opens_on(window: Window, day: date) -> bool:
    words = window.text.split()[0:-2]
    match words:
        case ["daily"]:
            return True
        case ["day", number]:
            return day.day == int(number)
        case [names]:
            return WEEKDAYS[day.weekday()] in names.split(",")
        case [which, name]:
            same = [
                other
                for number in range(1, 32)
                if (other := _of_month(day, number)) and WEEKDAYS[other.weekday()] == name
            ]
            chosen = -1 if which == "last" else int(which[0]) - 1
            return day == same[chosen]
    raise AssertionError(words)


def _of_month(day: date, number: int) -> date | None:
    try:
        return day.replace(day=number)
    except ValueError:
        return None


@given(st.lists(windows(), min_size=1, max_size=3), INSTANTS)
@settings(max_examples=examples(200), deadline=None)
def test_the_next_span_is_open_or_the_first_to_open(found: list[Window], now: int) -> None:
    span = next_span(found, now)
    assert span is not None
    assert span.closes is not None
    assert max(span.opens, now) < span.closes
    # Half-open, and nothing is left out: what is open is found in itself, and after it comes more.
    inside = max(span.opens, now)
    assert next_span(found, inside) == span
    after = next_span(found, span.closes)
    assert after is None or after.opens > span.closes or span.closes - now > 30 * DAY
    for earlier in spans(found, now):
        assert earlier.closes is not None
        if earlier.opens >= span.opens:
            break
        assert earlier.closes <= now  # minimal: none before it was still open


@given(windows(), INSTANTS)
@settings(max_examples=examples(200), deadline=None)
def test_looking_from_any_instant_before_gives_the_same_opening(window: Window, now: int) -> None:
    span = next_span([window], now)
    assert span is not None
    if span.opens > now:
        assert next_span([window], (now + span.opens) // 2) == span
        assert next_span([window], span.opens) == span
        assert next_span([window], span.opens - 1) == span


def test_five_hours_are_five_hours_on_an_ordinary_day() -> None:
    window = parse_window("22:00-03:00 Europe/Berlin")
    assert window.length == 5 * HOUR
    span = next_span([window], at("2027-01-15T08:00Z"))
    assert span is not None
    assert span.closes is not None
    assert span.closes - span.opens == 5 * HOUR

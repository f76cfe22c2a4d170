"""Durations and lists as people say them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Durations, ceil_second
from forewarn.core.world import World
from forewarn.support.text import in_words, listing, parse_duration
from helpers.examples import examples


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("15m", 15 * MINUTE),
        ("15 min", 15 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1 h 30 min", 90 * MINUTE),
        ("7d", 7 * DAY),
        ("30s", 30 * SECOND),
        ("1.5h", 90 * MINUTE),
        ("250ms", SECOND // 4),
        ("90", 90 * SECOND),
        ("0.5", SECOND // 2),
        ("0", 0),
        ("PT5M", 5 * MINUTE),
        ("PT15M", 15 * MINUTE),
        ("pt1h30m10s", HOUR + 30 * MINUTE + 10 * SECOND),
        ("P1D", DAY),
        ("P1DT2H", DAY + 2 * HOUR),
        ("  10M ", 10 * MINUTE),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, duration: int) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "5 parsecs", "-5m", "1h-30m", "P", "PT", "5m!", "m5", "1..5s", "٣m", "1e3"],
)
def test_an_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match=r"90s, 15m"):
        parse_duration(text)


@settings(max_examples=examples(200), deadline=None)
@given(st.text("0123456789. pthmsdinPT+-e", max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0


def test_a_duration_with_an_enormous_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration("9" * 400)


@pytest.mark.parametrize(
    ("duration", "words"),
    [
        (0, "0 s"),
        (2_500_000, "2.5 s"),
        (10 * SECOND, "10 s"),
        (30 * SECOND, "30 s"),
        (1_000, "0.001 s"),
        (MINUTE, "1 min"),
        (15 * MINUTE, "15 min"),
        (90 * SECOND, "1 min 30 s"),
        (90 * MINUTE, "1 h 30 min"),
        (DAY + 2 * HOUR + 3 * MINUTE, "1 d 2 h"),
        (DAY + 5 * SECOND, "1 d 5 s"),
        (-90 * SECOND, "-1 min 30 s"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(duration: int, words: str) -> None:
    assert in_words(duration) == words


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 400 * DAY))
def test_a_written_duration_reads_back_nearly_the_same(duration: int) -> None:
    read = parse_duration(in_words(duration))
    assert abs(read - duration) <= max(duration // 20, 500)


def test_a_long_list_is_shortened() -> None:
    assert listing([]) == "nothing"
    assert listing(["a", "b"]) == "a, b"
    names = [f"m{number}" for number in range(13)]
    assert listing(names[:10]) == ", ".join(names[:10])
    assert listing(names) == ", ".join(names[:10]) + " and 3 more"


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 10**16))
def test_rounding_up_to_a_second_never_makes_a_notice_short(at: int) -> None:
    rounded = ceil_second(at)
    assert rounded % SECOND == 0
    assert 0 <= rounded - at < SECOND


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 90 * DAY), st.sampled_from([1.0, 2.0, 60.0, 1_000.0]))
def test_speed_divides_a_duration(duration: int, speed: float) -> None:
    assert abs(Durations(speed=speed).paced(duration) * speed - duration) <= speed


def test_time_served_stands_still_during_outages() -> None:
    assert World(at=100, lost=40).served == 60
    assert World(at=100).grace_ends is None
    assert World(at=100, steady_since=90).grace_ends == 90 + 60 * SECOND

"""Instants and `datetime`, in both directions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.support.instants import from_datetime, to_datetime

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 and 9999


@given(st.integers(FIRST, LAST))
def test_an_instant_is_a_time_to_the_microsecond_and_the_same_instant_again(at: int) -> None:
    time = to_datetime(at)
    assert time.tzinfo is UTC
    assert time.microsecond == at % 1_000_000
    assert from_datetime(time) == at


def test_a_time_of_any_zone_is_an_instant() -> None:
    assert from_datetime(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert from_datetime(datetime(2027, 1, 15, 8, tzinfo=UTC)) == 1_800_000_000_000_000
    assert to_datetime(1_800_000_000_000_001) == datetime(2027, 1, 15, 8, 0, 0, 1, tzinfo=UTC)


def test_a_time_without_a_zone_is_no_instant() -> None:
    with pytest.raises(ValueError, match="time zone"):
        from_datetime(datetime(2027, 1, 15, 8))  # noqa: DTZ001


def test_an_instant_beyond_the_calendar_is_no_time() -> None:
    with pytest.raises(OverflowError):
        to_datetime(LAST + 1)

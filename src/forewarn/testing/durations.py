"""Durations and times as tests write them, and as the service counts them: in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from forewarn.core.events import UNKNOWN_DURATION
from forewarn.core.time import SECOND
from forewarn.support.instants import from_datetime
from forewarn.support.text import parse_duration
from forewarn.testing.errors import RefusedError

Duration: TypeAlias = str | float | timedelta
"""A duration: a text such as `"90s"`, `"15m"` or `"1h30m"`, a number of seconds, or a `timedelta`.
"""


def in_microseconds(duration: Duration) -> int:
    """Return a duration in microseconds, or raise RefusedError if it is none."""
    if isinstance(duration, timedelta):
        if duration < timedelta():
            raise RefusedError(f"a duration cannot be negative: {duration}")
        return duration // timedelta(microseconds=1)
    try:
        return parse_duration(f"{duration:f}" if isinstance(duration, float) else str(duration))
    except ValueError as error:
        raise RefusedError(str(error)) from None


def in_seconds(duration: Duration) -> float:
    """Return a duration in seconds, or raise RefusedError if it is none."""
    return in_microseconds(duration) / SECOND


def moments(before: Duration | Sequence[Duration]) -> tuple[int, ...]:
    """Return one duration or several in microseconds, or raise RefusedError if one is none."""
    several = [before] if isinstance(before, str | int | float | timedelta) else before
    return tuple(map(in_microseconds, several))


def whole_seconds(duration: Duration) -> int:
    """Return the duration of an impact, which is whole seconds or unknown (-1), or raise
    RefusedError."""
    if duration == UNKNOWN_DURATION:
        return UNKNOWN_DURATION
    seconds, rest = divmod(in_microseconds(duration), SECOND)
    if rest:
        raise RefusedError(f"an event's duration is a whole number of seconds, not {duration!r}")
    return seconds


def instant(time: datetime) -> int:
    """Return a time in microseconds since 1970, or raise RefusedError if it has no time zone."""
    if time.tzinfo is None:
        raise RefusedError(
            f"{time!r} has no time zone; pass one that has, such as"
            " datetime(2027, 1, 15, 8, tzinfo=UTC)"
        )
    return from_datetime(time)

"""Windows: recurring spans in which the steps of a rollout may start, in the local time of a zone.

A window opens at the first instant at which local clocks show its opening time or later, and closes
at the first at which they show its closing time or later. So on a day on which an hour is skipped
it is shorter, or does not open at all, and on a day that has an hour twice the first of the two
counts. How a window is written is `window_syntax.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from forewarn.core.events import Span
from forewarn.core.time import DAY, MINUTE, SECOND, Duration, Time
from forewarn.support.instants import from_datetime, to_datetime

LOOK_AHEAD: Duration = 400 * DAY  # a window that does not open within this never opens
LONGEST_SPAN: Duration = 35 * DAY  # adjacent windows count as one, up to this length
SPAN_CACHE_SIZE = 256  # results that are cached: all steps of a rollout ask for the same one

A_DAY = timedelta(days=1)
MINUTES_A_DAY = 24 * 60


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The days on which a window opens, and its hours. Without weekdays and days: every day."""

    text: str  # as it was written
    opens: int  # minutes after midnight
    closes: int  # likewise; on the next day if not after `opens`
    weekdays: tuple[int, ...] = ()  # Monday is 0
    which: tuple[
        int, ...
    ] = ()  # which of these weekdays in a month: 1 to 5, or -1 for the last; empty: all
    days: tuple[int, ...] = ()  # of the month
    zone: str = "UTC"

    def opens_on(self, day: date) -> bool:
        if self.days:
            return day.day in self.days
        if self.weekdays and day.weekday() not in self.weekdays:
            return False
        if not self.which:
            return True
        last = (day + 7 * A_DAY).month != day.month
        return (day.day - 1) // 7 + 1 in self.which or (last and -1 in self.which)

    @property
    def length(self) -> Duration:
        """Its length on a day without a change of the clocks."""
        return ((self.closes - self.opens - 1) % MINUTES_A_DAY + 1) * MINUTE


def next_span(windows: Sequence[Window], at: Time) -> Span | None:
    """Return the span that is open at `at`, or the next one; None if none opens within LOOK_AHEAD.

    A span includes the instant at which it opens and not the one at which it closes. Windows that
    overlap or are adjacent form one span.
    """
    return _next_span(tuple(windows), at)


@lru_cache(maxsize=SPAN_CACHE_SIZE)
def _next_span(windows: tuple[Window, ...], at: Time) -> Span | None:
    opens: Time | None = None
    closes: Time = 0
    for span in spans(windows, at):
        assert span.closes is not None
        if opens is None:
            if span.closes > at:
                opens, closes = span.opens, span.closes
        elif span.opens > closes or closes - at > LONGEST_SPAN:
            break
        else:
            closes = max(closes, span.closes)
    return None if opens is None else Span(opens, closes)


def spans(windows: Sequence[Window], at: Time) -> Iterator[Span]:
    """Yield every opening of every window in order, beginning a few days before `at`."""
    return heapq.merge(*(_openings(w, at) for w in windows), key=lambda span: span.opens)


def _openings(window: Window, at: Time) -> Iterator[Span]:
    zone = zone_of(window.zone)
    # A window may have opened the day before, and the zone may be a day behind; plus one.
    day = _local(at, zone).date() - 3 * A_DAY
    last = _local(at + LOOK_AHEAD, zone).date()
    while day <= last:
        if window.opens_on(day):
            opens = _first_shown(day, window.opens, zone)
            over_night = window.closes <= window.opens
            closes = _first_shown(day + A_DAY if over_night else day, window.closes, zone)
            if opens < closes:
                yield Span(opens, closes)
        day += A_DAY


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return a time zone by name. Raises ZoneInfoNotFoundError or ValueError if there is none.

    UTC does not need time zone data.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


def local(at: Time, zone: str) -> datetime:
    """Return the local date and time in a zone."""
    return _local(at, zone_of(zone))


def _local(at: Time, zone: tzinfo) -> datetime:
    return to_datetime(at).astimezone(zone)


def _first_shown(day: date, minutes: int, zone: tzinfo) -> Time:
    """Return the first instant at which clocks in the zone show this time or later."""
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)  # noqa: DTZ001
    first = from_datetime(wall.replace(tzinfo=zone))
    if _local(first, zone).replace(tzinfo=None) == wall:
        return first
    # They never show it, because an hour is skipped: find the instant at which it is.
    low, high = from_datetime(wall.replace(tzinfo=zone, fold=1)) // SECOND, first // SECOND
    while high - low > 1:  # clocks show an earlier time at `low`, a later one at `high`
        middle = (low + high) // 2
        if _local(middle * SECOND, zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high * SECOND

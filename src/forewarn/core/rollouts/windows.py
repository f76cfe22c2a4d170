"""Windows: when planned work may begin, in the local time of a place.

A window opens at the first instant at which the clocks there show its opening time or later,
and closes at the first at which they show its closing time or later. So on the day on which an
hour is left out it is shorter, or does not open at all, and on the day that has an hour twice
the first of the two counts. How a window is written is `window_syntax.py`.
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
LONGEST_SPAN: Duration = 35 * DAY  # windows that follow on each other count as one, up to this
SPANS_KEPT = 256  # answers that are kept: for all steps of a rollout it is the same one

A_DAY = timedelta(days=1)
MINUTES_A_DAY = 24 * 60


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The days it opens on, and from when to when. Without weekdays and days: every day."""

    said: str
    opens: int  # minutes after midnight
    closes: int  # the same; not after `opens`: on the next day
    weekdays: tuple[int, ...] = ()  # Monday is 0
    which: tuple[int, ...] = ()  # of the weekdays in a month: 1 to 5, -1 the last; empty: all
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
        """On an ordinary day."""
        return ((self.closes - self.opens - 1) % MINUTES_A_DAY + 1) * MINUTE


def next_span(windows: Sequence[Window], at: Time) -> Span | None:
    """The span that is open then, or the first to open after; None: none within LOOK_AHEAD.

    It contains its opening and not its closing. Windows that overlap or follow on each other
    are one span.
    """
    return _next_span(tuple(windows), at)


@lru_cache(maxsize=SPANS_KEPT)
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
    """Every opening of every window in the order of opening, from a little before `at`."""
    return heapq.merge(*(_openings(w, at) for w in windows), key=lambda span: span.opens)


def _openings(window: Window, at: Time) -> Iterator[Span]:
    zone = zone_of(window.zone)
    # A window may have opened yesterday, and it may be yesterday there; twice, to be safe.
    day = _local(at, zone).date() - 3 * A_DAY
    last = _local(at + LOOK_AHEAD, zone).date()
    while day <= last:
        if window.opens_on(day):
            opens = _shown(day, window.opens, zone)
            over_night = window.closes <= window.opens
            closes = _shown(day + A_DAY if over_night else day, window.closes, zone)
            if opens < closes:
                yield Span(opens, closes)
        day += A_DAY


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Raises ZoneInfoNotFoundError or ValueError for a name that is none. UTC needs no data."""
    return UTC if name == "UTC" else ZoneInfo(name)


def local(at: Time, zone: str) -> datetime:
    """What clocks and calendars show there."""
    return _local(at, zone_of(zone))


def _local(at: Time, zone: tzinfo) -> datetime:
    return to_datetime(at).astimezone(zone)


def _shown(day: date, minutes: int, zone: tzinfo) -> Time:
    """The first instant at which clocks there show this or later."""
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)  # noqa: DTZ001
    first = from_datetime(wall.replace(tzinfo=zone))
    if _local(first, zone).replace(tzinfo=None) == wall:
        return first
    # They never show it: an hour is left out. Where does it begin?
    low, high = from_datetime(wall.replace(tzinfo=zone, fold=1)) // SECOND, first // SECOND
    while high - low > 1:  # shown earlier at `low`, later at `high`
        middle = (low + high) // 2
        if _local(middle * SECOND, zone).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high * SECOND

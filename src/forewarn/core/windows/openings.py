"""When windows are open: the spans in which maintenance may start, and the search for the next.

A window opens at the first instant at which local clocks show its opening time or later, and closes
at the first at which they show its closing time or later. So on a day on which an hour is skipped
it is shorter, or does not open at all, and on a day that has an hour twice the first of the two
counts. A window whose time zone this computer does not know never opens.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from forewarn.core.windows.model import (
    A_DAY,
    MaintenanceConfiguration,
    Span,
    Window,
    known_zone,
)
from forewarn.support.instants import Time, from_datetime, to_datetime
from forewarn.support.text import DAY, SECOND, Duration

LOOK_AHEAD: Duration = 400 * DAY  # a window that does not open within this never opens
LONGEST_SPAN: Duration = 35 * DAY  # adjacent windows count as one, up to this length
SPAN_CACHE_SIZE = 256  # results that are cached: all steps of a rollout ask for the same one
SHOWN_CACHE_SIZE = 4_096  # instants at which windows open or close
# A search that fails looks this much further ahead, so that it does not have to be repeated sooner:
# it takes a hundred times as long as one that succeeds.
FAILURE_HOLDS: Duration = DAY


def next_open(configurations: Sequence[MaintenanceConfiguration], at: Time) -> Span | None:
    """Return the span in which all configurations allow maintenance at `at`, or the next one; None
    if there is none within LOOK_AHEAD."""
    key = tuple(configurations)
    known = _searched.get(key)
    if known is not None and known.asked <= at < known.holds_until:
        span = known.span
    else:
        span = _next_open(key, at, at + LOOK_AHEAD + FAILURE_HOLDS)
        if len(_searched) >= SPAN_CACHE_SIZE:
            _searched.clear()
        _searched[key] = _Searched(at, _holds_until(span, at), span)
    return span if span is not None and span.opens <= at + LOOK_AHEAD else None


def _holds_until(span: Span | None, at: Time) -> Time:
    """Return until when the same span is found as at `at`: until it opens, or closes."""
    if span is None:
        return at + FAILURE_HOLDS
    if span.opens > at:
        return span.opens
    return at + LOOK_AHEAD if span.closes is None else span.closes


class _Searched(NamedTuple):
    """What was found for an instant, and until when the same is found for later ones."""

    asked: Time
    holds_until: Time
    span: Span | None


_searched: dict[tuple[MaintenanceConfiguration, ...], _Searched] = {}


def is_open(configurations: Sequence[MaintenanceConfiguration], at: Time) -> bool:
    """Do all of them allow maintenance now?"""
    return all(
        configuration.blackout_at(at) is None and _in_window(configuration.windows, at)
        for configuration in configurations
    )


def _in_window(windows: tuple[Window, ...], at: Time) -> bool:
    if not windows:
        return True
    span = next_span(windows, at)
    return span is not None and span.opens <= at


def last_opening(
    configurations: Sequence[MaintenanceConfiguration], after: Time, until: Time
) -> Time | None:
    """Return the last whole second in a time at which a span opens in which they allow maintenance,
    or `until` itself if they allow it then; None if there is none."""
    last: Time | None = None
    at = after
    while (span := next_open(configurations, at)) is not None:
        opens = max(at, -(-span.opens // SECOND) * SECOND)
        if opens > until:
            break
        if span.closes is None or span.closes > until:
            return until
        last, at = opens, span.closes
    return last


def _next_open(
    configurations: tuple[MaintenanceConfiguration, ...], at: Time, until: Time
) -> Span | None:
    opens: Time = 0
    closes: Time | None = None
    while at <= until:
        later, opens, closes = at, 0, None
        for configuration in configurations:
            if configuration.windows:
                span = next_span(configuration.windows, at)
                if span is None:
                    return None
                later, opens = max(later, span.opens), max(opens, span.opens)
                closes = _first(closes, span.closes)
            if blackout := configuration.blackout_at(at):
                later = max(later, blackout.ends)
            opens = max(opens, configuration.last_blackout(at))
            closes = _first(closes, configuration.next_blackout(at))
        if later == at:
            return Span(opens, closes)
        at = later
    return None


def _first(one: Time | None, other: Time | None) -> Time | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def next_span(windows: Sequence[Window], at: Time) -> Span | None:
    """Return the span that is open at `at`, or the next one; None if none opens within LOOK_AHEAD.

    A span includes the instant at which it opens and not the one at which it closes. Windows that
    overlap or are adjacent form one span.
    """
    key = tuple(windows)
    known = _recent.get(key)
    if known is not None and known.asked <= at and (known.span.closes or 0) > at:
        return known.span
    span = _next_span(key, at)
    if span is not None:
        if len(_recent) >= SPAN_CACHE_SIZE:
            _recent.clear()
        _recent[key] = _Known(at, span)
    return span


class _Known(NamedTuple):
    """The span that was found for an instant. It is also the one for later instants until it
    closes."""

    asked: Time
    span: Span


_recent: dict[tuple[Window, ...], _Known] = {}


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
    zone = known_zone(window.zone)
    if zone is None:
        return
    # A window may have opened the day before, and the zone may be a day behind; plus one.
    day = _local(at, zone).date() - 3 * A_DAY
    last = _local(at + LOOK_AHEAD, zone).date()
    while day <= last:
        if window.opens_on(day):
            opens = first_shown(day, window.opens, zone)
            over_night = window.closes <= window.opens
            closes = first_shown(day + A_DAY if over_night else day, window.closes, zone)
            if opens < closes:
                yield Span(opens, closes)
        day += A_DAY


def _local(at: Time, zone: tzinfo) -> datetime:
    return to_datetime(at).astimezone(zone)


@lru_cache(maxsize=SHOWN_CACHE_SIZE)
def first_shown(day: date, minutes: int, zone: tzinfo) -> Time:
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

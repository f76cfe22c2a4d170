"""The time axis of a picture: positions of times, labels, and the formatting of times."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from forewarn.core.time import SECOND
from forewarn.support.text import in_words
from forewarn.testing.timeline.values import Picture
from forewarn.traces.lines import LAST

MIN_SPAN = 10.0  # seconds that an axis covers at least
MIN_FOLD = 3_600.0  # seconds: no shorter gap is ever folded
FOLD_RATIO = 10  # a gap is folded if it is so many times as long as everything else
FOLD_WIDTH = 0.12  # width of a fold, as a fraction of everything else
MAX_FOLDS = 6  # gaps in a picture that are folded
LANES_READ = 50  # lanes whose polls are considered when gaps are searched for
_DAY = 86_400.0
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200)


class Axis(msgspec.Struct, frozen=True):
    """A linear time axis on which long gaps without any activity are folded.

    Without folding, days of waiting would compress the minutes that matter.
    """

    begins: float
    ends: float
    folds: tuple[tuple[float, float], ...] = ()  # ascending, without overlaps

    @property
    def unfolded(self) -> float:
        return self.ends - self.begins - sum(end - start for start, end in self.folds)

    def share(self, t: float) -> float:
        """Return the position of a time, from 0 to 1."""
        if not self.folds:  # the usual case, and this is called for every poll that is drawn
            return min(max((t - self.begins) / (self.ends - self.begins), 0.0), 1.0)
        unfolded = self.unfolded
        fold_width = FOLD_WIDTH * unfolded
        at = t - self.begins
        for start, end in self.folds:
            inside = min(max(t - start, 0.0), end - start)
            at -= inside * (1 - fold_width / (end - start))
        return min(max(at / (unfolded + fold_width * len(self.folds)), 0.0), 1.0)

    def ticks(self, at_most: int) -> list[tuple[float, str]]:
        """Return about `at_most` round times, each with the shortest label that is unambiguous."""
        step = self._step(max(at_most, 1))
        bounds = [self.begins, *(t for fold in self.folds for t in fold), self.ends]
        labels = []
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            t = -(-start // step) * step
            after_fold = start > self.begins and step < _DAY  # may be another day: show the date
            while t <= end:
                labels.append(
                    (t, f"{_label(t, _DAY)} {_label(t, step)}" if after_fold else _label(t, step))
                )
                after_fold = False
                t += step
        return labels

    def _step(self, at_most: int) -> float:
        span = self.unfolded
        for step in _STEPS:
            if span / step <= at_most:
                return float(step)
        days = 1
        while span / (days * _DAY) > at_most:
            days *= 2
        return days * _DAY


def axis_of(picture: Picture) -> Axis:
    begins, ends = picture.begins, max(picture.ends, picture.begins + MIN_SPAN)
    return Axis(begins, ends, _folds(picture, begins, ends))


def _folds(picture: Picture, begins: float, ends: float) -> tuple[tuple[float, float], ...]:
    if ends - begins <= MIN_FOLD:
        return ()
    times = sorted({begins, ends, *(t for t in _moments(picture) if begins <= t <= ends)})
    gaps = [(b - a, a, b) for a, b in pairwise(times)]
    gaps = sorted((gap for gap in gaps if gap[0] > MIN_FOLD), reverse=True)[:MAX_FOLDS]
    for count in range(len(gaps), 0, -1):
        remaining = ends - begins - sum(duration for duration, _, _ in gaps[:count])
        if gaps[count - 1][0] > remaining * FOLD_RATIO:
            margin = (MIN_SPAN - remaining) / 2 / count if remaining < MIN_SPAN else 0.0
            return tuple(sorted((a + margin, b - margin) for _, a, b in gaps[:count]))
    return ()


def _moments(picture: Picture) -> Iterator[float]:
    """Iterate over the times at which something happened or is due."""
    yield picture.now
    for event in picture.events:
        times = (event.visible, event.not_before, event.approved, event.started, event.ended)
        yield from (t for t in times if t is not None)
        yield from (impact.t for impact in event.impacts)
        yield from event.seen.values()
    for outage in picture.outages:
        yield from (outage.start, outage.end)
    for lane in picture.lanes[:LANES_READ]:
        yield from (t for tick in lane.ticks for t in (tick.start, tick.end))
        yield from (mark.t for mark in lane.marks)
        yield from (t for time in lane.disconnected for t in (time.start, time.end))


def exact(t: float | None) -> str:
    """Format date and time, in UTC."""
    if t is None:
        return ""
    return f"{_utc(t):%Y-%m-%d} {time_of_day(t)}Z"


def time_of_day(t: float | None) -> str:
    """Format a time without its date."""
    if t is None:
        return ""
    return f"{_utc(t):%H:%M:%S}{_fraction(t)}"


def moment(t: float | None, shown: float | None) -> str:
    """Format a time, with its date unless that is the date of `shown`, which the reader sees."""
    if t is None or shown is None or _utc(t).date() != _utc(shown).date():
        return exact(t)
    return time_of_day(t)


def duration(seconds: float | None) -> str:
    """Format a duration, for example `15 min` or `2.5 s`."""
    return "" if seconds is None else in_words(round(max(seconds, 0.0) * 1_000) * (SECOND // 1_000))


def _utc(t: float) -> datetime:
    return datetime.fromtimestamp(min(round(t, 3), LAST), UTC)


def _fraction(t: float) -> str:
    return f"{round(t, 3) % 1:.3f}"[1:].rstrip("0").rstrip(".")


def _label(t: float, step: float) -> str:
    time = _utc(t)
    if step >= _DAY:
        return f"{time:%Y-%m-%d}" if step > 180 * _DAY else f"{time:%d %b}".lstrip("0")
    return f"{time:%H:%M:%S}" if step < 60 else f"{time:%H:%M}"

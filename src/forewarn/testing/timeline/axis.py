"""Where a time stands on the picture, which times are named on its axis, and how they are said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from forewarn.core.time import SECOND
from forewarn.support.text import in_words
from forewarn.testing.timeline.values import Picture
from forewarn.traces.lines import LAST

SHORTEST = 10.0  # seconds that an axis has at least, so that one moment is not all there is
LONG = 3_600.0  # seconds: no shorter stretch is ever folded
EMPTY = 10  # times as long as all the rest is what may be folded
FOLDED = 0.12  # of the rest is left of it
MAX_FOLDS = 6  # in a picture
LANES_LOOKED_AT = 50  # for their polls, where there are many
_DAY = 86_400.0
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200)


class Axis(msgspec.Struct, frozen=True):
    """Even, but that long stretches in which nothing happens are folded: days of waiting would
    press the minutes together that one wants to see."""

    begins: float
    ends: float
    folds: tuple[tuple[float, float], ...] = ()  # in order, and apart

    @property
    def unfolded(self) -> float:
        return self.ends - self.begins - sum(end - start for start, end in self.folds)

    def share(self, t: float) -> float:
        """How far along, from 0 to 1."""
        if not self.folds:  # as a rule; and this is asked for every poll that is drawn
            return min(max((t - self.begins) / (self.ends - self.begins), 0.0), 1.0)
        rest = self.unfolded
        fold = FOLDED * rest  # what is left of each
        at = t - self.begins
        for start, end in self.folds:
            inside = min(max(t - start, 0.0), end - start)
            at -= inside * (1 - fold / (end - start))
        return min(max(at / (rest + fold * len(self.folds)), 0.0), 1.0)

    def ticks(self, at_most: int) -> list[tuple[float, str]]:
        """Round times, about as many as asked for, with the shortest words that tell them apart."""
        step = self._step(max(at_most, 1))
        bounds = [self.begins, *(t for fold in self.folds for t in fold), self.ends]
        made = []
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            t = -(-start // step) * step
            another = start > self.begins and step < _DAY  # day, after a fold
            while t <= end:
                made.append(
                    (t, f"{_label(t, _DAY)} {_label(t, step)}" if another else _label(t, step))
                )
                another = False
                t += step
        return made

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
    begins, ends = picture.begins, max(picture.ends, picture.begins + SHORTEST)
    return Axis(begins, ends, _folds(picture, begins, ends))


def _folds(picture: Picture, begins: float, ends: float) -> tuple[tuple[float, float], ...]:
    if ends - begins <= LONG:
        return ()
    at = sorted({begins, ends, *(t for t in _moments(picture) if begins <= t <= ends)})
    gaps = [(b - a, a, b) for a, b in pairwise(at)]
    gaps = sorted((gap for gap in gaps if gap[0] > LONG), reverse=True)[:MAX_FOLDS]
    for count in range(len(gaps), 0, -1):
        rest = ends - begins - sum(length for length, _, _ in gaps[:count])
        if gaps[count - 1][0] > rest * EMPTY:
            least = (SHORTEST - rest) / 2 / count if rest < SHORTEST else 0.0
            return tuple(sorted((a + least, b - least) for _, a, b in gaps[:count]))
    return ()


def _moments(picture: Picture) -> Iterator[float]:
    """When something happened, or was to happen."""
    yield picture.now
    for one in picture.events:
        known = (one.visible, one.not_before, one.approved, one.started, one.over)
        yield from (t for t in known if t is not None)
        yield from (impact.t for impact in one.impacts)
        yield from (sight.seen for sight in one.sights if sight.seen is not None)
    for away in picture.away:
        yield from (away.start, away.end)
    for lane in picture.lanes[:LANES_LOOKED_AT]:
        yield from (t for tick in lane.ticks for t in (tick.start, tick.end))
        yield from (mark.t for mark in lane.marks)


def exact(t: float | None) -> str:
    """A time in full, in UTC."""
    if t is None:
        return ""
    return f"{_day(t):%Y-%m-%d} {of_day(t)}Z"


def of_day(t: float | None) -> str:
    """A time without its date."""
    if t is None:
        return ""
    return f"{_day(t):%H:%M:%S}{_fraction(t)}"


def length(seconds: float | None) -> str:
    """`15 min`, `2.5 s`: as everywhere else."""
    return "" if seconds is None else in_words(round(max(seconds, 0.0) * 1_000) * (SECOND // 1_000))


def after(since: float | None, t: float | None) -> str:
    """How long after something a thing happened."""
    return "" if since is None or t is None else length(t - since)


def _day(t: float) -> datetime:
    return datetime.fromtimestamp(min(round(t, 3), LAST), UTC)


def _fraction(t: float) -> str:
    return f"{round(t, 3) % 1:.3f}"[1:].rstrip("0").rstrip(".")


def _label(t: float, step: float) -> str:
    at = _day(t)
    if step >= _DAY:
        return f"{at:%Y-%m-%d}" if step > 180 * _DAY else f"{at:%d %b}".lstrip("0")
    return f"{at:%H:%M:%S}" if step < 60 else f"{at:%H:%M}"

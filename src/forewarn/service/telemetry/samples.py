"""Values of metrics, before they are rendered for a scrape."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"


class Sample(msgspec.Struct, frozen=True):
    """A metric: one number, or one for each combination of label values."""

    name: str
    help: str
    kind: MetricKind
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]


class Histogram:
    """Counts of values, by the first bound that a value does not exceed."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last one for values above all bounds
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def up_to(self) -> list[tuple[float, int]]:
        """Return the number of values up to each bound, and up to infinity."""
        return list(zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True))


class Histograms(msgspec.Struct, frozen=True):
    """A metric: one histogram, or one for each combination of label values."""

    name: str
    help: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], Histogram]]


def gauge(name: str, help: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Sample:
    return Sample(name, help, MetricKind.GAUGE, labels, list(samples.items()))


def counter(name: str, help: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Sample:
    return Sample(name, help, MetricKind.COUNTER, labels, list(samples.items()))


def histogram(name: str, help: str, values: Histogram) -> Histograms:
    return Histograms(name, help, (), [((), values)])

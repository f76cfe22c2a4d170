"""What the parts of a service tell about themselves in numbers, for whoever watches it."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec


class Kind(enum.Enum):
    COUNTER = "counter"  # only grows
    GAUGE = "gauge"  # as it is now


class Sample(msgspec.Struct, frozen=True):
    """One number, or one for each value of its labels."""

    name: str
    says: str
    kind: Kind
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]


class Histogram:
    """How often something was how large: counted by the first bound that it does not exceed."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last: larger than all bounds
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def up_to(self) -> list[tuple[float, int]]:
        """How many were not larger than each bound, and how many in all."""
        return list(zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True))


class Histograms(msgspec.Struct, frozen=True):
    """How something is spread, or one such for each value of its labels."""

    name: str
    says: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], Histogram]]


def gauge(name: str, says: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Sample:
    return Sample(name, says, Kind.GAUGE, labels, list(samples.items()))


def counter(name: str, says: str, samples: Mapping[tuple[str, ...], float], *labels: str) -> Sample:
    return Sample(name, says, Kind.COUNTER, labels, list(samples.items()))


def spread(name: str, says: str, of: Histogram) -> Histograms:
    return Histograms(name, says, (), [((), of)])

"""Metrics of several workers, combined. Counters are added up, including those of workers that have
ended; gauges are the sum over the workers that are connected. Like all counters they begin with the
control process: what a worker counted before that is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from forewarn.service.telemetry.samples import MetricKind, Sample, counter, gauge

POLLS = "forewarn_polls"

_Key: TypeAlias = tuple[str, tuple[str, ...]]  # a reading's name, and a sample's labels
Samples: TypeAlias = Sequence[tuple[tuple[str, ...], float]]


class WorkerMetrics:
    def __init__(self) -> None:
        self._last: dict[str, Sequence[Sample]] = {}  # by process
        self._before: dict[
            str, dict[_Key, float] | None
        ] = {}  # by process: its baseline; None: not yet known
        self._past: dict[_Key, float] = {}  # totals of processes that have ended

    def add(self, instance: str, counted_before: bool) -> None:
        """Add a worker's process. If it has counted before, its first report is the baseline."""
        self._before.setdefault(instance, None if counted_before else {})

    def update(self, instance: str, readings: Sequence[Sample]) -> None:
        if self._before.setdefault(instance, {}) is None:
            counted = [r for r in readings if r.kind is not MetricKind.GAUGE]
            self._before[instance] = {
                (r.name, labels): v for r in counted for labels, v in r.samples
            }
        self._last[instance] = readings

    def retain(self, instances: Iterable[str]) -> None:
        """Add the counters of all other processes to the totals, and forget the processes."""
        for ended in self._last.keys() - set(instances):
            for reading in self._last.pop(ended):
                if reading.kind is not MetricKind.GAUGE:
                    for labels, value in self._since_baseline(ended, reading):
                        key = reading.name, labels
                        self._past[key] = self._past.get(key, 0.0) + value
            self._before.pop(ended, None)

    def _since_baseline(self, instance: str, reading: Sample) -> Samples:
        if reading.kind is MetricKind.GAUGE:
            return reading.samples
        before = self._before.get(instance) or {}
        return [
            (labels, v - before.get((reading.name, labels), 0)) for labels, v in reading.samples
        ]

    def polls(self, instance: str) -> float:
        """Return how many polls this process has answered."""
        readings = self._last.get(instance, ())
        return sum(value for r in readings if r.name == POLLS for _, value in r.samples)

    def readings(self, instances: Iterable[str]) -> Iterator[Sample]:
        """Return the sums; for gauges, over these processes only."""
        present = set(instances)
        sums: dict[str, dict[tuple[str, ...], float]] = {}
        shapes: dict[str, Sample] = {}
        for instance, readings in self._last.items():
            for reading in readings:
                shapes.setdefault(reading.name, reading)
                if reading.kind is MetricKind.GAUGE and instance not in present:
                    continue
                totals = sums.setdefault(reading.name, {})
                for labels, value in self._since_baseline(instance, reading):
                    totals[labels] = totals.get(labels, 0.0) + value
        for (name, labels), value in self._past.items():
            if name in shapes:
                totals = sums.setdefault(name, {})
                totals[labels] = totals.get(labels, 0.0) + value
        for name, shape in shapes.items():
            samples = list(sums.get(name, {}).items())
            yield Sample(name, shape.help, shape.kind, shape.labels, samples)


def worker_samples(
    expected: int, serving: int, lags: Mapping[int, int], polls: Mapping[int, float]
) -> Iterator[Sample]:
    """Return metrics about the workers: how many serve, how many changes each has not
    confirmed yet, and how many polls each has answered since it was started."""
    yield gauge("forewarn_workers", "Metadata workers that answer guests", {(): serving})
    yield gauge(
        "forewarn_workers_expected", "Metadata workers that there should be", {(): expected}
    )
    yield gauge(
        "forewarn_worker_lag",
        "Changes that a worker has not confirmed yet",
        {(str(worker),): lag for worker, lag in lags.items()},
        "worker",
    )
    yield counter(
        "forewarn_worker_polls",
        "Documents that a worker has answered since it was started",
        {(str(worker),): n for worker, n in polls.items()},
        "worker",
    )

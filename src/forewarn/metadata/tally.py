"""Readings of several workers as one: what they count is added up, also what was counted by a
worker that is gone; what they hold now is the sum of those who are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from forewarn.service.readings import Kind, Reading


class Tally:
    def __init__(self) -> None:
        self._last: dict[str, Sequence[Reading]] = {}  # by the worker's process
        self._past: dict[tuple[str, tuple[str, ...]], float] = {}  # counted by those who are gone

    def note(self, instance: str, readings: Sequence[Reading]) -> None:
        self._last[instance] = readings

    def keep(self, instances: Iterable[str]) -> None:
        """Only these may ever say more."""
        for gone in self._last.keys() - set(instances):
            for reading in self._last.pop(gone):
                if reading.kind is not Kind.GAUGE:
                    for labels, value in reading.samples:
                        key = reading.name, labels
                        self._past[key] = self._past.get(key, 0.0) + value

    def readings(self, there: Iterable[str]) -> Iterator[Reading]:
        """Summed up; gauges over those who are there."""
        present = set(there)
        sums: dict[str, dict[tuple[str, ...], float]] = {}
        shapes: dict[str, Reading] = {}
        for instance, readings in self._last.items():
            for reading in readings:
                shapes.setdefault(reading.name, reading)
                if reading.kind is Kind.GAUGE and instance not in present:
                    continue
                into = sums.setdefault(reading.name, {})
                for labels, value in reading.samples:
                    into[labels] = into.get(labels, 0.0) + value
        for (name, labels), value in self._past.items():
            if name in shapes:
                into = sums.setdefault(name, {})
                into[labels] = into.get(labels, 0.0) + value
        for name, shape in shapes.items():
            samples = list(sums.get(name, {}).items())
            yield Reading(name, shape.says, shape.kind, shape.labels, samples)


def of_workers(lags: Mapping[int, int]) -> Iterator[Reading]:
    """Of those who answer guests: how many commits each does not show yet, as it last said."""
    yield Reading(
        "forewarn_workers", "Metadata workers that answer guests", Kind.GAUGE, (), [((), len(lags))]
    )
    yield Reading(
        "forewarn_worker_lag",
        "Commits that a worker does not show yet, as it last said",
        Kind.GAUGE,
        ("worker",),
        [((str(worker),), lag) for worker, lag in lags.items()],
    )

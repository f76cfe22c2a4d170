"""Readings in Prometheus' words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from forewarn.service.readings import Kind, Reading

CONTENT_TYPE = "text/plain; version=0.0.4"  # the charset is added when it is sent
_FAMILIES = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily}


class _Once(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for reading in self._readings:
            family = _FAMILIES[reading.kind](reading.name, reading.says, labels=reading.labels)
            for labels, value in reading.samples:
                family.add_metric(labels, value)
            yield family


def exposition(readings: Iterable[Reading]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Once(list(readings)))
    return generate_latest(registry)

"""Readings in Prometheus' words, and in OpenMetrics' for whoever asks for those."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from forewarn.service.telemetry.samples import Histograms, Kind, Sample

CONTENT_TYPE = "text/plain; version=0.0.4"  # the charset is added when it is sent
_FAMILIES = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily}
_PROCESS = ProcessCollector(registry=None)


class _Once(Collector):
    def __init__(self, readings: Iterable[Sample | Histograms]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for reading in self._readings:
            if isinstance(reading, Histograms):
                yield _histogram(reading)
                continue
            family = _FAMILIES[reading.kind](reading.name, reading.says, labels=reading.labels)
            for labels, value in reading.samples:
                family.add_metric(labels, value)
            yield family
        yield from _PROCESS.collect()


def exposition(readings: Iterable[Sample | Histograms], accept: str = "") -> tuple[bytes, str]:
    """The text, and what kind of text it is."""
    registry = CollectorRegistry()
    registry.register(_Once(list(readings)))
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def _histogram(spreads: Histograms) -> Metric:
    family = HistogramMetricFamily(spreads.name, spreads.says, labels=spreads.labels)
    for labels, spread in spreads.samples:
        buckets = [(_bound(bound), float(n)) for bound, n in spread.up_to()]
        family.add_metric(labels, buckets, spread.sum)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))

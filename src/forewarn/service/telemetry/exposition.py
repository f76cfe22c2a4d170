"""Metrics as text, in Prometheus' format or in that of OpenMetrics."""

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

from forewarn.service.telemetry.samples import Histograms, MetricKind, Sample

_FAMILIES = {MetricKind.COUNTER: CounterMetricFamily, MetricKind.GAUGE: GaugeMetricFamily}
_PROCESS = ProcessCollector(registry=None)


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample | Histograms]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        for sample in self._samples:
            if isinstance(sample, Histograms):
                yield _histogram(sample)
                continue
            family = _FAMILIES[sample.kind](sample.name, sample.help, labels=sample.labels)
            for labels, value in sample.samples:
                family.add_metric(labels, value)
            yield family
        yield from _PROCESS.collect()


def exposition(samples: Iterable[Sample | Histograms], accept: str = "") -> tuple[bytes, str]:
    """Return the text of /metrics and its media type."""
    registry = CollectorRegistry()
    registry.register(_Samples(list(samples)))
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def _histogram(histograms: Histograms) -> Metric:
    family = HistogramMetricFamily(histograms.name, histograms.help, labels=histograms.labels)
    for labels, histogram in histograms.samples:
        buckets = [(_bound(bound), float(n)) for bound, n in histogram.up_to()]
        family.add_metric(labels, buckets, histogram.sum)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))

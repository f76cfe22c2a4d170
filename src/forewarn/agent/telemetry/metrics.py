"""The agent's metrics: plain numbers, counted along with the log, and written in Prometheus' format
on request. Prometheus' library is only imported then.

Counters begin with the process; what describes current events and hooks is taken from the agent's
status, and so survives a restart.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from forewarn import __version__
from forewarn.agent.config.model import Hook
from forewarn.agent.telemetry.log import Log
from forewarn.agent.telemetry.status import AgentStatus
from forewarn.client.endpoint_state import FAILURE_KINDS

if TYPE_CHECKING:
    from prometheus_client.core import Metric

BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds of a hook
MAX_VALUES = 100  # of labels whose values others choose; those beyond are counted as OTHER
OTHER = "other"
OUTCOMES = ("done", "failed", "timed-out", "not-started")  # of a command; others are rare

Samples: TypeAlias = Mapping[tuple[str, ...], float]


class Histogram:
    """Values, counted by the first bound that they do not exceed."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        bounds = [*map(repr, BOUNDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class AgentMetrics:
    """Counters that are kept by passing on what is logged: every occurrence is logged, so nothing
    else has to count."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        """The counters of `hooks` exist from the beginning: a series that begins at one has not
        increased."""
        self.seen: Counter[tuple[str, ...]] = Counter()  # by type and source
        self.runs: Counter[tuple[str, ...]] = Counter(  # by hook, stage and outcome
            {
                (hook.name, stage, outcome): 0
                for hook in hooks
                for stage in hook.stages
                for outcome in OUTCOMES
            }
        )
        self.seconds: dict[tuple[str, str], Histogram] = {}  # by hook and stage
        self.approvals: Counter[tuple[str, ...]] = Counter(  # by outcome
            {("approved",): 0, ("failed",): 0}
        )

    def counted(self, log: Log) -> Log:
        """Return a log that counts what is written to it."""

        def count_and_log(what: str, /, **facts: Any) -> None:
            self.count(what, facts)
            log(what, **facts)

        return count_and_log

    def count(self, what: str, facts: Mapping[str, Any]) -> None:
        match what:
            case "event seen":
                key = str(facts.get("type", "")), str(facts.get("source") or "")
                known = key in self.seen or len(self.seen) < MAX_VALUES
                self.seen[key if known else (OTHER, OTHER)] += 1
            case "hook ended":
                self._count_run(facts)
            case "approved":
                self.approvals["approved",] += 1
            case "approval failed":
                self.approvals["failed",] += 1

    def _count_run(self, facts: Mapping[str, Any]) -> None:
        hook, stage = str(facts["hook"]), str(facts["stage"])
        outcome = str(facts["outcome"])
        if outcome == "ended":
            outcome = "done" if facts.get("ok") else "failed"
        self.runs[hook, stage, outcome] += 1
        if (seconds := facts.get("seconds")) is not None:
            self.seconds.setdefault((hook, stage), Histogram()).add(seconds)


class Health(NamedTuple):
    """The results of `AgentHealth` for one scrape."""

    healthy: bool
    ready: bool
    writable: bool


def exposition(
    metrics: AgentMetrics, status: AgentStatus, health: Health, accept: str = ""
) -> tuple[bytes, str]:
    """Return the text and its content type: Prometheus' own, or OpenMetrics if it is accepted."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.registry import Collector

    class AgentCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families(metrics, status, health)
            yield from ProcessCollector(registry=None).collect()

    registry = CollectorRegistry()
    registry.register(AgentCollector())
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def families(metrics: AgentMetrics, status: AgentStatus, health: Health) -> Iterator[Metric]:
    build: Samples = {(__version__, platform.python_version()): 1.0}
    yield _gauge("build_info", "Always 1, with the version.", build, "version", "python")
    yield _gauge("healthy", "1 if the agent works at all.", health.healthy)
    yield _gauge("ready", "1 if the agent can do its job.", health.ready)
    yield _gauge("dry_run", "1 if the agent only logs what it would do.", status.dry_run)
    yield _gauge("state_writable", "1 if the state directory is writable.", health.writable)
    yield from _endpoint(status)
    yield from _events(metrics, status)
    yield from _hooks(metrics, status)


def _endpoint(status: AgentStatus) -> Iterator[Metric]:
    endpoint = status.endpoint
    info: Samples = {(endpoint.endpoint, endpoint.version): 1.0} if endpoint.endpoint else {}
    text = "Always 1, with the endpoint in use."
    yield _gauge("endpoint_info", text, info, "endpoint", "api_version")
    yield _gauge("long_poll", "1 if long-polls are in use, 0 for polls.", endpoint.long_poll)
    yield _counter("responses", "Responses of the endpoint.", endpoint.responses)
    kinds = {*FAILURE_KINDS, *endpoint.failures_by_kind}
    failures: Samples = {(kind,): float(endpoint.failures_by_kind.get(kind, 0)) for kind in kinds}
    yield _counter("request_failures", "Requests without a valid answer.", failures, "kind")
    current: Samples = {(endpoint.problem_kind,): 1.0} if endpoint.problem else {}
    yield _gauge("endpoint_problem", "1: the endpoint's current problem.", current, "kind")
    text = "Seconds without a valid answer; 0 if the last one was valid."
    yield _gauge("silence_seconds", text, status.silence)


def _events(metrics: AgentMetrics, status: AgentStatus) -> Iterator[Metric]:
    yield _counter("events_seen", "Events that have appeared.", metrics.seen, "type", "source")
    listed: dict[tuple[str, ...], float] = {("Scheduled",): 0.0, ("Started",): 0.0}
    for event in status.events:
        key = (event.status if (event.status,) in listed else OTHER,)
        listed[key] = listed.get(key, 0.0) + 1
    yield _gauge("events", "Events that are listed.", listed, "status")
    yield _gauge("cases", "Events that are being handled.", len(status.open))
    text = "Events that this machine is ready for while others are not."
    yield _gauge("waiting", text, status.waiting)
    yield _counter("approvals", "Approvals.", metrics.approvals, "outcome")


def _hooks(metrics: AgentMetrics, status: AgentStatus) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    labels = ("hook", "stage")
    yield _counter("hook_runs", "Commands that have ended.", metrics.runs, *labels, "outcome")
    text = "Duration of commands in seconds."
    seconds = HistogramMetricFamily("forewarn_agent_hook_seconds", text, labels=labels)
    for values, histogram in metrics.seconds.items():
        seconds.add_metric(list(values), histogram.cumulative(), histogram.sum)
    yield seconds
    text = "Commands that are running or about to."
    yield _gauge("hooks_running", text, status.active_runs)
    text = "Commands that are running after their time limit."
    yield _gauge("hooks_overdue", text, status.overdue)
    yield _gauge("undo_pending", "Hooks that are prepared and not undone.", status.to_undo)
    yield _gauge("undo_given_up", "Hooks whose undo was given up.", len(status.given_up))


def _gauge(name: str, text: str, samples: Samples | float, *labels: str) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _family(GaugeMetricFamily, name, text, samples, labels)


def _counter(name: str, text: str, samples: Samples | float, *labels: str) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _family(CounterMetricFamily, name, text, samples, labels)


def _family(
    kind: Any, name: str, text: str, samples: Samples | float, labels: Sequence[str]
) -> Metric:
    family: Metric = kind(f"forewarn_agent_{name}", text, labels=labels)
    add: Any = family.add_metric  # type: ignore[attr-defined]
    for values, number in samples.items() if isinstance(samples, Mapping) else [((), samples)]:
        add(list(values), float(number))
    return family

"""What the agent counts, for whoever watches it: plain numbers, kept as things happen, and told in
Prometheus' words when somebody asks. Until then nothing of Prometheus' library is imported.

Counters begin with the process; what is about events and hooks as they stand is read off the
stories, and so goes on after a restart.
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
from forewarn.agent.telemetry.log import Tell
from forewarn.agent.telemetry.status import AgentStatus
from forewarn.client.endpoint_state import NONE_FOUND
from forewarn.client.steps import TROUBLES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

BOUNDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds of a hook
MAX_VALUES = 100  # of labels that others may choose; whatever comes after them is OTHER
OTHER = "other"
ENDS = ("done", "failed", "timed-out", "not-started")  # of a command, beside rarer ones
ANSWERED = "answered "
KINDS = (*TROUBLES, "4xx", "5xx", "not-a-document", NONE_FOUND)  # of trouble; rarer: 3xx, …
_KINDS = {words: kind for kind, words in TROUBLES.items()}

Samples: TypeAlias = Mapping[tuple[str, ...], float]


class Histogram:
    """How often something was how large: counted by the first bound that it does not exceed."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.sum += value

    def up_to(self) -> list[tuple[str, float]]:
        bounds = [*map(repr, BOUNDS), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class AgentMetrics:
    """Hears what is told, and lets it pass: every happening is told, so nobody else need count."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        """What hooks may come to is there from the beginning: of a number that begins at one
        nobody can tell that it has grown."""
        self.seen: Counter[tuple[str, ...]] = Counter()  # by type and source
        self.runs: Counter[tuple[str, ...]] = Counter(  # by hook, stage and outcome
            {(h.name, stage, outcome): 0 for h in hooks for stage in h.stages for outcome in ENDS}
        )
        self.seconds: dict[tuple[str, str], Histogram] = {}  # by hook and stage
        self.approvals: Counter[tuple[str, ...]] = Counter(  # by outcome
            {("approved",): 0, ("failed",): 0}
        )

    def hearing(self, tell: Tell) -> Tell:
        def heard(what: str, **facts: Any) -> None:
            self.hear(what, facts)
            tell(what, **facts)

        return heard

    def hear(self, what: str, facts: Mapping[str, Any]) -> None:
        match what:
            case "event seen":
                key = str(facts.get("type", "")), str(facts.get("source") or "")
                known = key in self.seen or len(self.seen) < MAX_VALUES
                self.seen[key if known else (OTHER, OTHER)] += 1
            case "hook ended":
                self._ran(facts)
            case "approved":
                self.approvals["approved",] += 1
            case "not approved":
                self.approvals["failed",] += 1

    def _ran(self, facts: Mapping[str, Any]) -> None:
        hook, stage = str(facts["hook"]), str(facts["stage"])
        outcome = str(facts["outcome"])
        if outcome == "ended":
            outcome = "done" if facts.get("ok") else "failed"
        self.runs[hook, stage, outcome] += 1
        if (seconds := facts.get("seconds")) is not None:
            self.seconds.setdefault((hook, stage), Histogram()).add(seconds)


class Health(NamedTuple):
    """What `Wellbeing` finds, for a scrape."""

    healthy: bool
    ready: bool
    writable: bool


def exposition(
    counts: AgentMetrics, picture: AgentStatus, health: Health, accept: str = ""
) -> tuple[bytes, str]:
    """The text, and what kind of text it is: Prometheus' own, or OpenMetrics for whoever asks."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.registry import Collector

    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families(counts, picture, health)
            yield from ProcessCollector(registry=None).collect()

    registry = CollectorRegistry()
    registry.register(Once())
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def families(counts: AgentMetrics, picture: AgentStatus, health: Health) -> Iterator[Metric]:
    build: Samples = {(__version__, platform.python_version()): 1.0}
    yield _gauge("build_info", "always 1: which version this is", build, "version", "python")
    yield _gauge("healthy", "1 if it works at all", health.healthy)
    yield _gauge("ready", "1 if it can do what it is there for", health.ready)
    yield _gauge("dry_run", "1 if it only says what it would do", picture.dry)
    yield _gauge("state_writable", "1 if its state directory can be written", health.writable)
    yield from _endpoint(picture)
    yield from _events(counts, picture)
    yield from _hooks(counts, picture)


def _endpoint(picture: AgentStatus) -> Iterator[Metric]:
    stands = picture.standing
    where: Samples = {(stands.endpoint, stands.version): 1.0} if stands.endpoint else {}
    yield _gauge("endpoint_info", "always 1: where it asks", where, "endpoint", "api_version")
    yield _gauge("long_poll", "1 if it is told of changes, 0 if it asks", stands.long_poll)
    yield _counter("answers", "answers of the endpoint", stands.answers)
    met: Samples = {(one,): float(stands.kinds.get(one, 0)) for one in {*KINDS, *stands.kinds}}
    yield _counter("troubles", "questions without an answer as it should be", met, "kind")
    what = kind(stands.trouble)
    if what == OTHER and stands.endpoint is None:
        what = NONE_FOUND
    now: Samples = {(what,): 1.0} if stands.trouble else {}
    yield _gauge("trouble", "1: what is wrong with the endpoint at the moment", now, "kind")
    yield _gauge("silence_seconds", "without a good answer; 0 if the last was", picture.silence)


def _events(counts: AgentMetrics, picture: AgentStatus) -> Iterator[Metric]:
    yield _counter("events_seen", "events that have appeared", counts.seen, "type", "source")
    listed: dict[tuple[str, ...], float] = {("Scheduled",): 0.0, ("Started",): 0.0}
    for event in picture.events:
        key = (event.status if (event.status,) in listed else OTHER,)
        listed[key] = listed.get(key, 0.0) + 1
    yield _gauge("events", "events that are listed", listed, "status")
    yield _gauge("cases", "events that are being handled", len(picture.open))
    yield _gauge("waiting", "events it is ready for, while others are not", picture.waiting)
    yield _counter("approvals", "approvals", counts.approvals, "outcome")


def _hooks(counts: AgentMetrics, picture: AgentStatus) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    labels = ("hook", "stage")
    yield _counter("hook_runs", "commands that have ended", counts.runs, *labels, "outcome")
    seconds = HistogramMetricFamily("forewarn_agent_hook_seconds", "their time", labels=labels)
    for values, spread in counts.seconds.items():
        seconds.add_metric(list(values), spread.up_to(), spread.sum)
    yield seconds
    yield _gauge("hooks_at_work", "commands that run, or are about to", picture.at_work)
    yield _gauge("hooks_overdue", "commands that run although their time is up", picture.overdue)
    yield _gauge("undo_pending", "hooks that are prepared and not put back", picture.to_undo)
    yield _gauge("undo_given_up", "hooks whose undo was given up", len(picture.given_up))


def kind(trouble: str) -> str:
    """What is wrong, in one of a few words: a status by its class."""
    if trouble in _KINDS:
        return _KINDS[trouble]
    said = trouble.removeprefix(ANSWERED)
    if said == trouble:
        return OTHER
    return f"{said[0]}xx" if len(said) == 3 and said.isdecimal() else "not-a-document"


def _gauge(name: str, says: str, samples: Samples | float, *labels: str) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily, name, says, samples, labels)


def _counter(name: str, says: str, samples: Samples | float, *labels: str) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily, name, says, samples, labels)


def _filled(
    family: Any, name: str, says: str, samples: Samples | float, labels: Sequence[str]
) -> Metric:
    made = family(f"forewarn_agent_{name}", says, labels=labels)
    for values, number in samples.items() if isinstance(samples, Mapping) else [((), samples)]:
        made.add_metric(list(values), float(number))
    filled: Metric = made
    return filled

"""Metrics of the service's own work: commits, driver calls, control calls, lost time.

The parts of the service report to it. Metrics of the fleet are `fleet_counts.py`; guests' requests
are counted by the metadata endpoint.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

from forewarn import __version__
from forewarn.core import World
from forewarn.core.time import SECOND, Time
from forewarn.service.engine.clock import (
    AWAY,
    STALLED,
    STEPPED,
    STEPPED_TOO_FAR,
    Clock,
    Interruption,
)
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.telemetry.fleet_counts import FleetCounts
from forewarn.service.telemetry.health import ServiceHealth
from forewarn.service.telemetry.samples import (
    Histogram,
    Histograms,
    Sample,
    counter,
    gauge,
    histogram,
)
from forewarn.store.port import Store

# Bounds in seconds.
COMMIT_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ATTEMPT_TIMES = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 600.0)
CALL_TIMES = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # works

RESULTS = ("done", "again", "failed", "unclear")  # of an attempt
INTERRUPTIONS = {
    AWAY: "away",
    STEPPED: "stepped",
    STEPPED_TOO_FAR: "stepped",
    STALLED: "stalled",
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
REFUSED = (401, 403)


class ServiceMetrics:
    def __init__(self, store: Store, feed: Feed, clock: Clock, poll_index: PollIndex) -> None:
        self._store = store
        self._feed = feed
        self.fleet_counts = FleetCounts(store, poll_index)
        self.pruned = 0  # records of the history
        self._commits = 0
        self._failures = 0
        self._commit_times = Histogram(COMMIT_TIMES)
        self._batches = Histogram(BATCHES)
        self._attempts: Counter[str] = Counter()
        self._attempt_times = Histogram(ATTEMPT_TIMES)
        self._calls: Counter[tuple[str, str]] = Counter()
        self._call_times = Histogram(CALL_TIMES)
        self._refused: Counter[int] = Counter()
        self._interruptions: Counter[str] = Counter()
        clock.on_interruption(self._interrupted)
        store.on_batch(self.committed)

    def committed(self, seconds: float, works: int, commits: int, failure: str) -> None:
        """Count a batch that was made durable, or could not be."""
        self._commit_times.add(seconds)
        self._batches.add(works)
        self._commits += 0 if failure else commits
        self._failures += bool(failure)

    def attempted(self, result: str, seconds: float) -> None:
        """Count an attempt of the driver to carry out an event."""
        self._attempts[result] += 1
        self._attempt_times.add(seconds)

    def called(self, method: str, status: int, seconds: float | None) -> None:
        """Count a request to the control API; without a time if it follows the feed."""
        kind = method if method in METHODS else "other"
        self._calls[kind, f"{status // 100}xx" if status else "none"] += 1
        if seconds is not None:
            self._call_times.add(seconds)
        if status in REFUSED:
            self._refused[status] += 1

    def _interrupted(self, interruption: Interruption) -> None:
        self._interruptions[INTERRUPTIONS.get(interruption.what, "other")] += 1

    def readings(
        self, now: World, scheduler: Scheduler, pruned: int, health: ServiceHealth
    ) -> Iterator[Sample | Histograms]:
        info: dict[tuple[str, ...], float] = {(__version__, platform.python_version()): 1.0}
        yield gauge(
            "forewarn_build_info", "Version of forewarn and of Python", info, "version", "python"
        )
        for name, help in (
            ("healthy", "1 if the service is healthy, as /healthz reports"),
            ("ready", "1 if the service is ready, as /readyz reports"),
        ):
            yield gauge(f"forewarn_{name}", help, {(): float(not health.failing(name))})
        yield from self.fleet_counts.readings(now.at)
        yield from self._of_commits()
        yield from self._of_calls()
        yield from self._of_feed()
        yield gauge(
            "forewarn_overdue_seconds",
            "Time since the first deadline that has not been processed; 0 if there is none",
            {(): overdue(scheduler.oldest_due(), now)},
        )
        yield gauge(
            "forewarn_deadlines",
            "Groups and rollouts that have a deadline",
            {(): scheduler.deadlines},
        )
        yield counter(
            "forewarn_interruptions",
            "Interruptions of the service, by reason",
            {(w,): self._interruptions[w] for w in (*INTERRUPTIONS.values(), "other")},
            "reason",
        )
        yield gauge(
            "forewarn_clock_trusted",
            "1 if the service trusts the wall clock, otherwise 0.",
            {(): float(now.untrusted is None)},
        )
        yield gauge(
            "forewarn_lost_seconds",
            "Time in which the service did not run, over the life of the state",
            {(): max(0, now.lost) / SECOND},  # negative if time was set back
        )
        yield gauge(
            "forewarn_state_bytes",
            "Size of the state file and its write-ahead log",
            {(): self._store.size()},
        )
        yield counter(
            "forewarn_history_pruned",
            "Records removed from the history because of their age",
            {(): pruned},
        )

    def _of_commits(self) -> Iterator[Sample | Histograms]:
        yield counter("forewarn_commits", "Durable commits", {(): self._commits})
        yield counter(
            "forewarn_commit_failures",
            "Batches that could not be made durable and had no effect",
            {(): self._failures},
        )
        yield histogram(
            "forewarn_commit_seconds", "Time until a batch was durable", self._commit_times
        )
        yield histogram(
            "forewarn_commit_batch", "Requests that were decided in one batch", self._batches
        )
        yield gauge(
            "forewarn_store_failing",
            "1 if the last write of the state has failed",
            {(): float(bool(self._store.problem()))},
        )

    def _of_calls(self) -> Iterator[Sample | Histograms]:
        yield counter(
            "forewarn_driver_attempts",
            "Attempts to carry out an event, by the driver's result",
            {(result,): self._attempts[result] for result in RESULTS},
            "result",
        )
        yield histogram(
            "forewarn_driver_seconds",
            "Time that the driver took for one attempt",
            self._attempt_times,
        )
        yield counter(
            "forewarn_control_requests",
            "Requests to the control API, by method and class of status",
            dict(sorted(self._calls.items())),
            "method",
            "status",
        )
        yield histogram(
            "forewarn_control_seconds",
            "Time that requests to the control API took",
            self._call_times,
        )
        yield counter(
            "forewarn_control_refused",
            "Requests without a valid token (401) or without the required role (403)",
            {(str(status),): self._refused[status] for status in REFUSED},
            "status",
        )

    def _of_feed(self) -> Iterator[Sample]:
        yield gauge("forewarn_commit", "Number of the newest commit", {(): self._store.seq})
        yield gauge(
            "forewarn_feed_streams", "Clients that follow the feed", {(): self._feed.followers}
        )
        yield gauge(
            "forewarn_feed_lag",
            "Commits that the slowest client of the feed has not been sent",
            {(): self._feed.lag},
        )


def overdue(due: Time | None, now: World) -> float:
    """Return by how many seconds the first deadline has passed."""
    return 0.0 if due is None else max(0.0, (now.at - due) / SECOND)

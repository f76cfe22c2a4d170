"""What the service measures of its own work: commits, driver calls, control calls, lost time.

Others tell it; it keeps the numbers and gives them as readings. How many there are of everything
is `fleet_counts.py`; what guests ask for is counted by their face.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

from forewarn import __version__
from forewarn.core import Now
from forewarn.core.time import SECOND, Time
from forewarn.service.engine.clock import Clock, Interruption
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.telemetry.fleet_counts import FleetCounts
from forewarn.service.telemetry.health import ServiceHealth
from forewarn.service.telemetry.samples import Histogram, Histograms, Sample, counter, gauge, spread
from forewarn.store.port import Store

# Bounds in seconds.
COMMIT_TIMES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ATTEMPT_TIMES = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 600.0)
CALL_TIMES = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # works

RESULTS = ("done", "again", "failed", "unclear")  # of an attempt
INTERRUPTIONS = {
    "the service was away": "away",
    "the wall clock was stepped": "stepped",
    "the wall clock was stepped too far to be followed": "stepped",
    "the process stood still": "stalled",
}
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
REFUSED = (401, 403)  # to whoever has no token, or not the right one


class ServiceMetrics:
    def __init__(self, store: Store, feed: Feed, clock: Clock) -> None:
        self._store = store
        self._feed = feed
        self.fleet_counts = FleetCounts(store)
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
        store.measure(self.committed)

    def committed(self, seconds: float, works: int, commits: int, failure: str) -> None:
        """A batch was made durable, or could not be."""
        self._commit_times.add(seconds)
        self._batches.add(works)
        self._commits += 0 if failure else commits
        self._failures += bool(failure)

    def attempted(self, result: str, seconds: float) -> None:
        """A driver was asked to carry an event out, and has answered."""
        self._attempts[result] += 1
        self._attempt_times.add(seconds)

    def called(self, method: str, status: int, seconds: float | None) -> None:
        """A call of the control API was answered; without a time if it is one that lasts."""
        kind = method if method in METHODS else "other"
        self._calls[kind, f"{status // 100}xx" if status else "none"] += 1
        if seconds is not None:
            self._call_times.add(seconds)
        if status in REFUSED:
            self._refused[status] += 1

    def _interrupted(self, interruption: Interruption) -> None:
        self._interruptions[INTERRUPTIONS.get(interruption.what, "other")] += 1

    def readings(
        self, now: Now, scheduler: Scheduler, pruned: int, health: ServiceHealth
    ) -> Iterator[Sample | Histograms]:
        info: dict[tuple[str, ...], float] = {(__version__, platform.python_version()): 1.0}
        yield gauge("forewarn_build_info", "Which forewarn this is", info, "version", "python")
        for name, says in (
            ("healthy", "Does the service work at all, as /healthz says?"),
            ("ready", "Can it do what it is there for, as /readyz says?"),
        ):
            yield gauge(f"forewarn_{name}", says, {(): float(not health.unwell(name))})
        yield from self.fleet_counts.readings(now.at)
        yield from self._of_commits()
        yield from self._of_calls()
        yield from self._of_feed()
        yield gauge(
            "forewarn_overdue_seconds",
            "For how long the first deadline that was not kept is overdue; 0 if there is none",
            {(): overdue(scheduler.oldest_due(), now)},
        )
        yield gauge("forewarn_deadlines", "Groups and rollouts with one", {(): scheduler.deadlines})
        yield counter(
            "forewarn_interruptions",
            "How often time was not served: the service was away, stood still, or the clock jumped",
            {(w,): self._interruptions[w] for w in (*INTERRUPTIONS.values(), "other")},
            "what",
        )
        yield gauge(
            "forewarn_clock_trusted",
            "1 if the service trusts the wall clock, otherwise 0.",
            {(): float(now.untrusted is None)},
        )
        yield gauge(
            "forewarn_lost_seconds",
            "Time in which nobody served, over the life of the state",
            {(): max(0, now.lost) / SECOND},  # negative if time was set back
        )
        yield gauge(
            "forewarn_state_bytes",
            "Size of the state file and of what lies beside it until it is part of it",
            {(): self._store.size()},
        )
        yield counter(
            "forewarn_history_pruned", "Records of the history that were too old", {(): pruned}
        )

    def _of_commits(self) -> Iterator[Sample | Histograms]:
        yield counter("forewarn_commits", "Commits that are durable", {(): self._commits})
        yield counter(
            "forewarn_commit_failures",
            "Batches that could not be made durable; nothing of them happened",
            {(): self._failures},
        )
        yield spread(
            "forewarn_commit_seconds", "How long a batch took to be durable", self._commit_times
        )
        yield spread(
            "forewarn_commit_batch", "Works that were decided for one batch", self._batches
        )
        yield gauge(
            "forewarn_store_trouble",
            "1 while the last write of the state has failed",
            {(): float(bool(self._store.healthy()))},
        )

    def _of_calls(self) -> Iterator[Sample | Histograms]:
        yield counter(
            "forewarn_driver_attempts",
            "Attempts at carrying an event out, by what the driver made of them",
            {(result,): self._attempts[result] for result in RESULTS},
            "result",
        )
        yield spread(
            "forewarn_driver_seconds", "How long a driver took for one", self._attempt_times
        )
        yield counter(
            "forewarn_control_requests",
            "Calls of the control API, by method and class of status",
            dict(sorted(self._calls.items())),
            "method",
            "status",
        )
        yield spread("forewarn_control_seconds", "How long they took", self._call_times)
        yield counter(
            "forewarn_control_refused",
            "Calls of whoever has no token (401), or not the right one (403)",
            {(str(status),): self._refused[status] for status in REFUSED},
            "status",
        )

    def _of_feed(self) -> Iterator[Sample]:
        yield gauge("forewarn_commit", "The number of the newest commit", {(): self._store.seq})
        yield gauge("forewarn_feed_streams", "Who follows the feed", {(): self._feed.followers})
        yield gauge(
            "forewarn_feed_lag",
            "Commits that whoever is furthest behind has not been sent",
            {(): self._feed.lag},
        )


def overdue(due: Time | None, now: Now) -> float:
    """Seconds by which the first deadline has passed."""
    return 0.0 if due is None else max(0.0, (now.at - due) / SECOND)

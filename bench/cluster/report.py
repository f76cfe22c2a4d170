"""What was found, as tables in Markdown, and held against the targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cluster.scenarios import CALLERS, FOLLOWERS, Compared, Followed, Lag, percentile
from bench.platform.decisions import Round
from bench.poll.report import table


@dataclass(frozen=True)
class Target:
    name: str
    limit: float
    ratios: Sequence[float]
    at_least: bool = False
    unit: str = "×"

    @property
    def measured(self) -> float:
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Of those scenarios that were run."""
    decisions: Compared | None = found.get("decisions")
    against = f"durable decisions, PostgreSQL against SQLite, {CALLERS} callers"
    if decisions:
        yield Target(against, 0.7, decisions.rates, at_least=True)
    if "one-caller" in found:
        yield Target("the same, 1 caller", 0.3, found["one-caller"].rates, at_least=True)
    if "standby" in found:
        name = f"with a synchronous standby, {CALLERS} callers"
        yield Target(name, 0.5, found["standby"].rates, at_least=True)
    if decisions:
        yield Target("CPU of an event, PostgreSQL against SQLite", 1.2, decisions.costs)
    if "followers" in found:
        name = f"durable decisions, a leader with {FOLLOWERS} followers against none"
        yield Target(name, 0.9, found["followers"].rates, at_least=True)
    if "lag" in found:
        name = "lag of a follower, p99, against the median of a commit"
        yield Target(name, 1.0, [one.ratio for one in found["lag"]])


def judged(targets: Iterable[Target]) -> str:
    rows = [
        (
            target.name,
            f"{'at least' if target.at_least else 'at most'} {target.limit:g} {target.unit}",
            f"{target.measured:.2f} {target.unit}",
            spread(target.ratios, 2),
            "yes" if target.met else "no",
        )
        for target in targets
    ]
    return table(("target", "wanted", "measured", "from–to", "met"), rows)


def against_sqlite(found: Compared) -> str:
    return rounds({"PostgreSQL": found.ours, "SQLite": found.peers})


def followers(found: Followed) -> str:
    late = [max(0.0, seconds) * 1e3 for seconds in found.late]
    return (
        rounds({f"{FOLLOWERS} followers": found.ours, "none": found.peers})
        + f"\n\nAll followers had the last commit {statistics.median(late):.1f} ms"
        f" ({spread(late, 1)}) after the end of a round."
    )


def rounds(found: Mapping[str, Sequence[Round]]) -> str:
    rows = []
    for name, each in found.items():
        rates = [round.rate for round in each]
        costs = [round.cost for round in each]
        rows.append(
            (
                *(name, f"{statistics.median(rates):,.0f}", spread(rates, 0)),
                f"{statistics.median(round.decisions / round.batches for round in each):.1f}",
                f"{statistics.median(round.latency for round in each) * 1e3:.1f}",
                *(f"{statistics.median(costs):,.0f}", spread(costs, 0)),
                f"{statistics.median(round.cpu / round.seconds for round in each) * 100:.0f} %",
            )
        )
    head = ("", "decisions/s", "from–to", "in a commit", "an event, p50 ms")
    return table((*head, "CPU/event µs", "from–to", "of the core"), rows)


def lag(found: Sequence[Lag]) -> str:
    rows = [
        (
            name,
            *(f"{statistics.median(percentile(one, p) for one in each) * 1e3:.2f}" for p in MARKS),
            f"{max(max(one) for one in each) * 1e3:.1f}",
            f"{sum(map(len, each)):,}",
        )
        for name, each in (
            ("a commit", [one.commits for one in found]),
            ("until a follower has it, from when the leader had", [one.behind for one in found]),
        )
    ]
    head = ("what", *(f"p{mark} ms" for mark in MARKS), "max ms", "samples")
    return table(head, rows)


MARKS = (50, 90, 99)


def spread(values: Sequence[float], digits: int) -> str:
    return f"{min(values):,.{digits}f}–{max(values):,.{digits}f}"

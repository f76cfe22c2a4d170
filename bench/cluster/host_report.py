"""What nodes on hosts cost, as tables in Markdown, and the targets."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.cluster.host_scenarios import Many, Polls, Publishing, Visible
from bench.cluster.report import MARKS, Target, rounds, spread
from bench.cluster.scenarios import Compared, percentile
from bench.poll.report import KIB, MIB, table

FORESEEN = 20_000  # nodes


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Of those scenarios that were run."""
    if "polls" in found:
        name = "CPU of a poll on a node, against a service of one process"
        yield Target(name, 1.25, found["polls"].ratios)
    for scenario, callers in (("publish", "32 callers"), ("publish-one", "1 caller")):
        if published := found.get(scenario):
            name = f"CPU of publishing to {published.nodes} nodes, against deciding, {callers}"
            yield Target(name, 4.0, published.shares)
    if "seen" in found:
        name = "from raised to seen on a host, p99, against a service without nodes"
        yield Target(name, 3.0, found["seen"].ratios)
    if "silent" in found:
        name = "decisions for other groups beside a silent node, against without it"
        yield Target(name, 0.95, found["silent"].rates, at_least=True)
    if many := found.get("many"):
        lines = [storm.line / KIB for storm in many[-1].storms]
        yield Target(f"memory of a line, of {many[-1].hosts:,}", 45, lines, unit="KiB")
        idle = _fit(many, lambda one: [one.idle * 100])(FORESEEN)
        name = f"idle control with {FORESEEN:,} nodes, by the fit, of a core"
        yield Target(name, 33, [idle], unit="%")


def polls(found: Polls) -> str:
    rows = [
        (
            *(name, f"{statistics.median(costs):.1f}", spread(costs, 1)),
            f"{idle / 1e3:.1f}",
        )
        for name, costs, idle in (
            ("node", found.node, found.idle_node),
            ("service of one process", found.alone, found.idle_alone),
        )
    ]
    return table(("", "CPU/poll µs", "from–to", "idle, CPU ms/s"), rows)


def publishing(found: Publishing) -> str:
    return rounds({f"{found.nodes} nodes": found.ours, "without nodes": found.peers})


def seen(found: Visible) -> str:
    rows = [
        (
            name,
            *(f"{statistics.median(percentile(one, p) for one in each):.1f}" for p in MARKS),
            f"{max(max(one) for one in each):.1f}",
            f"{sum(map(len, each)):,}",
        )
        for name, each in (("on a host", found.node), ("without nodes", found.alone))
    ]
    head = ("raised until seen", *(f"p{mark} ms" for mark in MARKS), "max ms", "samples")
    return table(head, rows)


def silent(found: Compared) -> str:
    return rounds({"a silent node": found.ours, "none": found.peers})


def many(found: Sequence[Many]) -> str:
    figures: list[tuple[str, int, Callable[[Many], Sequence[float]], bool]] = [
        ("joined after control was killed, s", 1, lambda m: [s.joined for s in m.storms], True),
        ("control's CPU for that, s", 2, lambda m: [s.cpu for s in m.storms], True),
        ("for each node, µs", 0, lambda m: [s.cpu / m.hosts * 1e6 for s in m.storms], False),
        (
            "when lines were cut, µs",
            0,
            lambda m: [s.returned / m.hosts * 1e6 for s in m.storms],
            False,
        ),
        ("memory of control, MiB", 0, lambda m: [s.resident / MIB for s in m.storms], True),
        ("memory of a line, KiB", 1, lambda m: [s.line / KIB for s in m.storms], False),
        ("idle control, share of a core, %", 2, lambda m: [m.idle * 100], True),
        ("before there were lines, %", 2, lambda m: [m.idle_alone * 100], False),
        (
            "a change of a group on all hosts, ms",
            0,
            lambda m: [t.seconds * 1e3 for t in m.changes],
            True,
        ),
        (
            "control's CPU for each node, µs",
            0,
            lambda m: [t.cpu / m.hosts * 1e6 for t in m.changes],
            False,
        ),
    ]
    rows = []
    for name, digits, values, fitted in figures:
        cells = [_median(values(one), digits) for one in found]
        if fitted:
            fit = _fit(found, values)
            line = f"{fit(0):,.{digits}f} + {fit(1000) - fit(0):,.{digits}f} n/1,000"
            cells += [line, f"{fit(FORESEEN):,.{digits}f}"]
        else:
            cells += ["", ""]
        rows.append((name, *cells))
    head = ("nodes", *(f"{one.hosts:,}" for one in found), "fit", f"at {FORESEEN:,}")
    return table(head, rows)


def _fit(
    found: Sequence[Many], values: Callable[[Many], Sequence[float]]
) -> Callable[[int], float]:
    """Return the line through the medians, by least squares."""
    medians = [statistics.median(values(one)) for one in found]
    slope, constant = statistics.linear_regression([one.hosts for one in found], medians)
    return lambda hosts: constant + slope * hosts


def _median(values: Sequence[float], digits: int) -> str:
    median = f"{statistics.median(values):,.{digits}f}"
    return median if len(values) == 1 else f"{median} ({spread(values, digits)})"

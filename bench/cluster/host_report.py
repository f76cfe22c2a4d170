"""What nodes on hosts cost, as tables in Markdown, and the targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.cluster.host_scenarios import Many, Polls, Telling, Visible
from bench.cluster.report import MARKS, Target, rounds, spread
from bench.cluster.scenarios import Compared, percentile
from bench.poll.report import KIB, table


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Of those scenarios that were run."""
    if "polls" in found:
        name = "CPU of a poll on a node, against a service of one process"
        yield Target(name, 1.25, found["polls"].ratios)
    for scenario, callers in (("told", "32 callers"), ("told-one", "1 caller")):
        if telling := found.get(scenario):
            name = f"CPU of telling {telling.nodes} nodes, against deciding, {callers}"
            yield Target(name, 4.0, telling.shares)
    if "seen" in found:
        name = "from raised to seen on a host, p99, against a service without nodes"
        yield Target(name, 3.0, found["seen"].ratios)
    if "silent" in found:
        name = "decisions for other groups beside a silent node, against without it"
        yield Target(name, 0.95, found["silent"].rates, at_least=True)
    if many := found.get("many"):
        lines = [storm.line / KIB for storm in many.storms]
        yield Target(f"memory of a line, of {many.hosts:,}", 45, lines, unit="KiB")


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


def told(found: Telling) -> str:
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


def many(found: Many) -> str:
    joined = [storm.joined for storm in found.storms]
    costs = [storm.cpu / found.hosts * 1e6 for storm in found.storms]
    lines = [storm.line / KIB for storm in found.storms]
    told = [one.seconds * 1e3 for one in found.told]
    telling = [one.cpu / found.hosts * 1e6 for one in found.told]
    rows = [
        _row("all nodes joined after control was killed, s", joined, 1),
        _row("control's CPU for each of them, µs", costs, 0),
        _row("memory of a line, KiB", lines, 1),
        _row("a change of a group on all hosts, until all had it, ms", told, 0),
        _row("control's CPU for each node that it was told to, µs", telling, 0),
        _row("idle control, share of a core, %", [found.idle * 100], 1),
        _row("the same before there were lines, %", [found.idle_alone * 100], 1),
    ]
    return (
        f"{found.hosts:,} nodes and {found.machines:,} machines.\n\n"
        f"{table(('', 'median', 'from–to'), rows)}"
    )


def _row(name: str, values: Sequence[float], digits: int) -> tuple[str, str, str]:
    return name, f"{statistics.median(values):,.{digits}f}", spread(values, digits)

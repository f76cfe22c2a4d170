"""What was found, as a table, and what was asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bench.hostile.attacks import ATTACKS, SHAPED, Beside
from bench.poll.report import MIB, table
from bench.poll.targets import Target

LATENCY, MEMORY = 50.0, 256.0  # milliseconds, MiB


def targets(found: Sequence[Beside]) -> Iterator[Target]:
    for server in dict.fromkeys(each.server for each in found):
        attacked = [each for each in found if each.server == server and each.attack]
        if attacked:
            beside = f"{server} beside the worst attack"
            p99, peak = max(each.p99 for each in attacked), max(each.peak for each in attacked)
            yield Target(f"{beside}, p99", LATENCY, p99, "ms")
            yield Target(f"{beside}, memory", MEMORY, peak / MIB, "MiB")


def attacks() -> str:
    lines = [f"- {name}: each machine has {text}" for name, text in ATTACKS.items()]
    lines.append("- the others: 32 connections of each machine, 50 MB/s in all, with")
    lines += [f"    - {name}: {text}" for name, (text, _) in SHAPED.items()]
    return "\n".join(lines)


def results(found: Sequence[Beside]) -> str:
    head = ("attack", "server", "p50 ms", "p90 ms", "p99 ms", "max ms", "answered", "errors")
    tail = ("late, p99 ms", "of the core", "waited", "peak MiB", "after MiB")
    return table((*head, *tail, "attack MB/s", "opened", "cut"), map(_row, found))


def _row(one: Beside) -> tuple[str, ...]:
    sent = one.attackers
    return (
        *(one.attack or "none", one.server),
        *map(_latency, (one.p50, one.p90, one.p99)),
        f"{one.polls.latency.max:,.1f}",
        f"{one.answered * 100:.1f} %",
        f"{one.polls.errors:,}",
        f"{one.polls.late.p99:.2f}",
        *(f"{one.busy * 100:.0f} %", f"{one.waited * 100:.0f} %"),
        *(f"{one.peak / MIB:,.0f}", f"{one.after / MIB:,.0f}"),
        *((f"{sent.rate:,.1f}", f"{sent.opened:,}", f"{sent.cut:,}") if sent else ("",) * 3),
    )


def _latency(milliseconds: float) -> str:
    """A latency that was never reached is no number."""
    return "never" if math.isinf(milliseconds) else f"{milliseconds:,.2f}"

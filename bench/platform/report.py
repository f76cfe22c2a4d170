"""What was found, as tables in Markdown, and held against the targets."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.platform.scenarios import Applied, Costs, Decided, Idle
from bench.platform.visible import Seen
from bench.platform.world import SQLITE
from bench.poll.report import table

FLAT = 1.10  # what "flat" may mean on a machine with noise of its own
LINES = 14  # places that memory is told of


def decisions(found: Decided) -> str:
    rows = []
    for (store, size, callers), rounds in found.rounds.items():
        rates = [round.rate for round in rounds]
        peers = found.peers.get((size, callers), []) if store == SQLITE else []
        ratios = found.ratios(size, callers) if peers else []
        rows.append(
            (
                *(store, f"{size:,}", f"{callers:,}", f"{_median(rates):,.0f}", _range(rates, 0)),
                f"{_median([round.decisions / round.batches for round in rounds]):.0f}",
                f"{_median([round.latency for round in rounds]) * 1e3:.1f}",
                f"{_median([round.cost for round in rounds]):,.0f}",
                f"{_median([round.cpu / round.seconds for round in rounds]) * 100:.0f} %",
                f"{_median([peer.rate for peer in peers]):,.0f}" if peers else "",
                f"{_median(ratios):.2f}" if peers else "",
                _range(ratios, 2) if peers else "",
            )
        )
    head = ("store", "machines", "callers", "decisions/s", "from–to", "in a commit")
    tail = ("an event, p50 ms", "CPU/event µs", "of the core", "bare SQLite/s", "× bare", "from–to")
    syncs = f"{_median(found.syncs):,.0f} ({_range(found.syncs, 0)})"
    return (
        table((*head, *tail), rows)
        + f"\n\nThe disk alone: {syncs} times a second a block of 4 KiB written and waited for."
    )


def costs(found: Costs) -> str:
    rows = []
    for (store, kind, size), rounds in found.rounds.items():
        spent = [round.cost for round in rounds]
        rows.append(
            (
                *(store, kind, f"{size:,}", f"{_median(spent):,.0f}", _range(spent, 0)),
                f"{found.growth(store, kind, size):.2f}",
            )
        )
    head = ("store", "event", "machines", "CPU/event µs", "from–to", "× smallest")
    return table(head, rows)


def visible(found: Sequence[Seen]) -> str:
    rows = []
    for one in found:
        for what, values in (
            ("raised: decided and shown, in the process", one.raised_shown),
            ("raised: acknowledged, in the process", one.raised_acknowledged),
            ("raised: seen in a poll", one.raised_visible),
            ("raised: seen in a poll, from when it was decided", one.shown_visible),
            ("approved: the POST answered", one.approved_acknowledged),
            ("approved: seen in a poll", one.approved_visible),
            *([("beside it: a commit of bare SQLite", one.bare)] if one.store == SQLITE else []),
        ):
            rows.append(
                (
                    *(one.store, what, f"{_median(values):.2f}", f"{_percentile(values, 99):.2f}"),
                    *(f"{max(values):.1f}", f"{len(values):,}"),
                )
            )
    summary = ". ".join(
        f"On {one.store}: {one.background:.0f} decisions/s beside it, the core not to be had for"
        f" {one.waited * 100:.0f} % of the time, {one.missed} polls after an"
        " answered approval that did not show it"
        for one in found
    )
    head = ("store", "from being sent until", "p50 ms", "p99 ms", "max ms", "samples")
    return f"{table(head, rows)}\n\n{summary}."


def idle(found: Idle) -> str:
    each = found.machines
    rows = [
        ("resident, after apply", f"{found.applied.resident / each:,.0f}"),
        ("resident, after a restart", f"{found.loaded.resident / each:,.0f}"),
        ("resident, after a restart and a poll of each", f"{found.polled.resident / each:,.0f}"),
        ("as Python counts it, after a restart", f"{found.traced.traced / each:,.0f}"),
        ("as Python counts it, and a poll of each", f"{found.traced_polled.traced / each:,.0f}"),
    ]
    sizes = sorted(found.traced_polled.lines.items(), key=lambda line: -line[1])[:LINES]
    lines = [(f"`{line}`", f"{size / each:,.0f}") for line, size in sizes]
    return (
        f"{each:,} machines.\n\n"
        + table(("what", "bytes for a machine"), rows)
        + "\n\nWhere the last of these was asked for:\n\n"
        + table(("line", "bytes for a machine"), lines)
    )


def applies(found: Applied) -> str:
    runs = found.runs
    columns = {
        "seconds": ("seconds", 1),
        "again, nothing to do: seconds": ("again_seconds", 1),
        "resident before, MiB": ("rss_before_mib", 0),
        "at the most, MiB": ("rss_peak_mib", 0),
        "after, MiB": ("rss_after_mib", 0),
        "polls meanwhile": ("polls", 0),
        "the longest, ms": ("longest_poll_ms", 0),
        "approvals meanwhile": ("approvals", 0),
        "an event raised, approved and ended, the longest, ms": ("longest_approval_ms", 0),
    }
    rows = []
    for name, (key, digits) in columns.items():
        values = [_of(run, key) for run in runs]
        rows.append((name, f"{_median(values):,.{digits}f}", _range(values, digits)))
    seconds, peaks = [peer[0] for peer in found.peers], [peer[1] for peer in found.peers]
    rows += [
        ("peer: the YAML library alone, seconds", f"{_median(seconds):.1f}", _range(seconds, 1)),
        ("peer: at the most, MiB", f"{_median(peaks):,.0f}", _range(peaks, 0)),
        ("× peer, seconds", f"{_ratio(found):.2f}", ""),
    ]
    summary = (
        f"{runs[0]['machines']:,} machines, a file of {runs[0]['file_mib']:.1f} MiB, one core."
    )
    return f"{summary}\n\n" + table(("what", "median", "from–to"), rows)


def _of(run: Mapping[str, Any], key: str) -> float:
    found = run[key.replace("_ms", "_seconds")]
    return float(found) * 1e3 if key.endswith("_ms") else float(found)


def _ratio(found: Applied) -> float:
    pairs = zip(found.runs, found.peers, strict=True)
    return _median([run["seconds"] / peer[0] for run, peer in pairs])


@dataclass(frozen=True)
class Target:
    name: str
    limit: float
    measured: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Of those scenarios that were run."""
    if "decisions" in found:
        yield from _rates(found["decisions"])
    for one in found.get("visible", ()):
        for what, values in (("raised", one.raised_visible), ("approved", one.approved_visible)):
            name = f"{one.store}: {what}, from being sent to seen in a poll, p99"
            yield Target(name, 10, _percentile(values, 99), "ms")
    if "idle" in found:
        weight: Idle = found["idle"]
        most = max(weight.applied.resident, weight.polled.resident)
        yield Target("memory of an idle machine", 2_048, most / weight.machines, "bytes")
    if "cost" in found:
        cost: Costs = found["cost"]
        for store, kind in dict.fromkeys((store, kind) for store, kind, _ in cost.rounds):
            grown = cost.growth(store, kind, cost.sizes[-1])
            name = (
                f"{store}: CPU of a {kind}, {cost.sizes[-1]:,} machines against {cost.sizes[0]:,}"
            )
            yield Target(name, FLAT, grown, "×")
    if "apply" in found:
        took = _median([run["seconds"] for run in found["apply"].runs])
        yield Target(f"apply {found['apply'].runs[0]['machines']:,} machines", 30, took, "s")


def _rates(found: Decided) -> Iterator[Target]:
    callers = sorted({callers for _, _, callers in found.rounds})[1]
    for size in sorted({size for _, size, _ in found.rounds}):
        rate = _median([round.rate for round in found.rounds[SQLITE, size, callers]])
        name = f"SQLite: durable decisions, {size:,} machines, {callers} callers"
        yield Target(name, 1_500, rate, "/s", at_least=True)


def judged(found: Mapping[str, Any]) -> str:
    rows = [
        (
            target.name,
            f"{'at least' if target.at_least else 'at most'} {target.limit:,g} {target.unit}",
            f"{target.measured:,.{0 if target.limit > 100 else 2}f} {target.unit}",
            "yes" if target.met else "no",
        )
        for target in targets(found)
    ]
    return table(("target", "wanted", "measured", "met"), rows) if rows else ""


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):,.{digits}f}–{max(values):,.{digits}f}"

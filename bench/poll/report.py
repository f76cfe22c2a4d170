"""What was found, as tables in Markdown: medians over the rounds, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from bench.poll.loads import Found, Round
from bench.poll.peers import NGINX_NAME
from bench.poll.scenarios import MANY, Changing, Crowd, Shapes, Sweep

KIB, MIB = 1024, 1024 * 1024


def shapes(found: Shapes) -> str:
    rows = []
    for (shape, name), rounds in found.rounds.items():
        costs = [round.cost for round in rounds]
        ratios = found.ratios(shape, name, NGINX_NAME)
        rows.append(
            (
                *(shape, name),
                f"{_median(round.rate for round in rounds):,.0f}",
                _share(round.cpu / round.seconds for round in rounds),
                _share(round.waited / round.seconds for round in rounds),
                f"{_median(costs):.1f}",
                _range(costs, 1),
                f"{_median(ratios):.2f}",
                _range(ratios, 2),
                f"{_median(round.p50 for round in rounds):.2f}",
                f"{_median(round.p99 for round in rounds):.2f}",
                f"{found.memory[name] / MIB:.0f}",
                f"{_median(found.start_up[name]) * 1e3:,.0f}",
            )
        )
    head = ("connections", "server", "polls/s", "of the core", "waited", "CPU/poll µs")
    tail = ("from–to", "× nginx", "from–to", "p50 ms", "p99 ms", "memory MiB", "start-up ms")
    return table((*head, *tail), rows)


def crowds(found: Sequence[Crowd]) -> str:
    rows = [
        (
            *(one.name, f"{one.pollers:,}"),
            *_paced(one.found, one.round),
            f"{one.found.skipped:,}",
            f"{one.round.cost:.1f}",
            f"{one.memory / MIB:.0f}",
            f"{one.each / KIB:.1f}" if one.each else "",
        )
        for one in found
    ]
    tail = ("never sent", "CPU/poll µs", "memory MiB", "KiB/connection")
    return table(("server", "connections", *PACED, *tail), rows)


def slow(found: Sequence[Crowd]) -> str:
    rows = [
        (
            *(one.name, f"{one.pollers:,}", f"{one.found.slow_open:,}", f"{one.found.slow_cut:,}"),
            *_paced(one.found, one.round),
            f"{one.memory / MIB:.0f}",
        )
        for one in found
    ]
    head = ("server", "good", "slow, at the end", "slow, cut")
    return table((*head, *PACED, "memory MiB"), rows)


def sweep(found: Sweep) -> str:
    rows = []
    for name in found.names:
        for size in found.sizes:
            key = name, size
            one, many = found.one[key], found.many.get(key, [])
            costs = [round.cost for round in one]
            rows.append(
                (
                    *(name, f"{size:,}"),
                    f"{_median(costs):.1f}",
                    _range(costs, 1),
                    f"{_median(_against(one, found.one[name, found.sizes[0]])):.2f}",
                    f"{_median(round.rate for round in one):,.0f}",
                    f"{_median(round.p99 for round in one):.2f}",
                    f"{_median(round.cost for round in many):.1f}" if many else "",
                    f"{_median(round.rate for round in many):,.0f}" if many else "",
                    f"{found.memory[key] / MIB:.0f}",
                    f"{found.start_up[key]:.2f}",
                )
            )
    head = ("server", "machines", "CPU/poll µs", "from–to", "× smallest", "polls/s", "p99 ms")
    many_head = (f"{MANY} machines: CPU/poll µs", "polls/s")
    return table((*head, *many_head, "memory MiB", "start-up s"), rows)


def changing(found: Sequence[Changing]) -> str:
    rows = []
    for one in found:
        quiet, busy = one.quiet[1], one.changing[1]
        rows.append((one.name, "0", f"{quiet.rate:,.0f}", *_paced(*one.quiet), "", "", ""))
        took = f"{one.change_cost:,.0f}", f"{one.times.median:.1f}", f"{one.times.slowest:.0f}"
        rows.append(
            (one.name, f"{one.times.rate:.1f}", f"{busy.rate:,.0f}", *_paced(*one.changing), *took)
        )
    tail = ("CPU/change µs", "a change, p50 ms", "max ms")
    return table(("server", "changes/s", "polls/s", *PACED, *tail), rows)


PACED = ("p50 ms", "p99 ms", "max ms", "late, p99 ms", "of the core", "waited")


def _paced(found: Found, round: Round) -> tuple[str, ...]:
    """The columns of every load that keeps a pace."""
    return (
        f"{found.latency.p50:.2f}",
        f"{found.latency.p99:.2f}",
        f"{found.latency.max:.1f}",
        f"{found.late.p99:.2f}",
        _share([round.cpu / round.seconds]),
        _share([round.waited / round.seconds]),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown that also reads well in a terminal: words to the left, numbers to the right."""
    rows = [list(row) for row in rows]
    widths = [max(len(text) for text in column) for column in zip(head, *rows, strict=True)]
    words = [n == 0 or all(row[n][:1].isalpha() for row in rows) for n in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            text.ljust(width) if word else text.rjust(width)
            for text, width, word in zip(cells, widths, words, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rules = (
        "-" * width if word else "-" * (width - 1) + ":"
        for width, word in zip(widths, words, strict=True)
    )
    return "\n".join([line(head), f"| {' | '.join(rules)} |", *map(line, rows)])


def _against(rounds: Sequence[Round], base: Sequence[Round]) -> list[float]:
    return [one.cost / other.cost for one, other in zip(rounds, base, strict=True)]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def _share(values: Iterable[float]) -> str:
    return f"{_median(values) * 100:.0f} %"


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):.{digits}f}–{max(values):.{digits}f}"

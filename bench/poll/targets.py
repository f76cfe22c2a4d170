"""The targets: what each asks for, what was measured, and whether that is enough."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.poll.peers import FOREWARN, NGINX_NAME
from bench.poll.report import KIB, table
from bench.poll.scenarios import KEEP_ALIVE, ONE_SHOT, Crowd, Shapes, Sweep

FLAT = 1.10  # what "flat" may mean on a machine with noise of its own


@dataclass(frozen=True)
class Target:
    name: str
    limit: float
    measured: float
    unit: str

    @property
    def met(self) -> bool:
        return self.measured <= self.limit


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Of those scenarios that were run."""
    if "shapes" in found:
        yield from _shapes(found["shapes"])
    if "crowd" in found:
        yield from _crowd(found["crowd"])
    if "sweep" in found:
        growth: Sweep = found["sweep"]
        name = f"CPU per poll, {growth.sizes[-1]:,} machines against {growth.sizes[0]}"
        yield Target(name, FLAT, growth.growth(FOREWARN), "×")
    if "slow" in found:
        beside = _of(found["slow"])
        name = f"{beside.pollers:,} good pollers beside {beside.slow:,} slow connections, p99"
        yield Target(name, 50, beside.found.latency.p99, "ms")


def _shapes(found: Shapes) -> Iterator[Target]:
    for shape, limit in ((ONE_SHOT, 1.3), (KEEP_ALIVE, 0.8)):
        for peer, most in ((NGINX_NAME, limit), ("Go net/http", 1.0)):
            ratio = statistics.median(found.ratios(shape, FOREWARN, peer))
            yield Target(f"{shape}, CPU per poll against {peer}", most, ratio, "×")
    start_up = statistics.median(found.start_up[FOREWARN])
    yield Target("start-up to the first answer", 1.0, start_up, "s")


def _crowd(found: Sequence[Crowd]) -> Iterator[Target]:
    ours = _of(found)
    many = f"{ours.pollers:,} connections with a poll a second"
    yield Target(f"{many}, p99", 20, ours.found.latency.p99, "ms")
    yield Target(f"{many}, memory for each", 10, ours.each / KIB, "KiB")


def _of(crowds: Sequence[Crowd]) -> Crowd:
    return next(one for one in crowds if one.name == FOREWARN)


def judged(found: Mapping[str, Any]) -> str:
    return shown(targets(found))


def shown(targets: Iterable[Target]) -> str:
    rows = [
        (
            target.name,
            f"{target.limit:g} {target.unit}",
            "never" if math.isinf(target.measured) else f"{target.measured:.3f} {target.unit}",
            "yes" if target.met else "no",
        )
        for target in targets
    ]
    return table(("target", "at most", "measured", "met"), rows) if rows else ""

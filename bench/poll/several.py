"""One worker against two: how many polls a second could be answered.

The load generator needs a core as well, so that on two cores two workers can never be seen at full
speed. What is measured instead is CPU: how many polls did each worker answer, and how long was it
at work for them? So many a second it could answer with a core to itself. What workers cost each
other by running side by side, and what each reports to control, is in it. So is, at full speed,
that the second worker has to share its core with the load; not so where polls keep a pace that
leaves time for all. How evenly callers are spread is told beside it.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.poll.fleet import Fleet
from bench.poll.loads import generator
from bench.poll.peers import SEVERAL
from bench.poll.processes import BOTH_CORES, cpu_of, pause, tree
from bench.poll.servers import Server, serving

PACED = "a poll a second on each"
FULL_SPEED = KEEP_ALIVE, ONE_SHOT = "keep-alive, at full speed", "one-shot, at full speed"


class Shape(NamedTuple):
    mode: str
    pollers: int
    each: bool = False  # so many for each worker


SHAPES = {
    PACED: Shape("paced", 7_000, each=True),
    KEEP_ALIVE: Shape("flood", 1_900),
    ONE_SHOT: Shape("oneshot", 128),
}
MACHINES = 14_001
REPORTED = 1.3  # seconds after which every worker has told control what it has counted


@dataclass(frozen=True)
class Shares:
    """One measurement: CPU seconds by process."""

    polls: int
    seconds: float
    workers: tuple[float, ...]
    answered: tuple[float, ...]  # polls, by each of them
    control: float  # and the supervisor

    @property
    def capacity(self) -> float:
        """Polls a second, if every worker has a core to itself."""
        return sum(n / cpu for n, cpu in zip(self.answered, self.workers, strict=True))

    @property
    def cost(self) -> float:
        """Microseconds of all workers' CPU for one poll."""
        return sum(self.workers) / self.polls * 1e6

    @property
    def busiest(self) -> float:
        return max(self.answered) / sum(self.answered)


@dataclass
class Several:
    rounds: dict[tuple[str, str], list[Shares]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def ratios(self, shape: str) -> list[float]:
        """Two workers against one, round by round."""
        one, two = (self.rounds[shape, name] for name in SEVERAL)
        return [b.capacity / a.capacity for a, b in zip(one, two, strict=True)]

    def ratio(self, shape: str) -> float:
        return statistics.median(self.ratios(shape))


def several(rounds: int, seconds: float, scratch: Path) -> Several:
    fleet = Fleet(MACHINES)
    sources = fleet.write_sources(scratch)
    found = Several()
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(serving(name, fleet, scratch, core=BOTH_CORES)) for name in SEVERAL
        ]
        for n in range(rounds + 1):  # the first is to be warm; it does not count
            for name, shape in SHAPES.items():
                for server in servers if n % 2 == 0 else reversed(servers):
                    server.check()
                    one = _measured(server, sources, shape, seconds)
                    if n:
                        found.rounds.setdefault((name, server.name), []).append(one)
            sys.stderr.write(f"  round {n} of {rounds}\n")
        found.memory = {server.name: server.memory() for server in servers}
    return found


def _measured(server: Server, sources: Path, shape: Shape, seconds: float) -> Shares:
    pollers = shape.pollers * (list(SEVERAL).index(server.name) + 1 if shape.each else 1)
    warm = 2.0 if shape.each else 0.5
    counted = _counted(server)
    with generator(
        server, sources, mode=shape.mode, pollers=pollers, seconds=seconds, warm=warm
    ) as load:
        before = _by_process(server)
        told, _ = load.found()
        after = _by_process(server)
    used = {pid: after[pid][1] - before[pid][1] for pid in before}
    workers = {number: used[pid] for pid, (number, _) in after.items() if number is not None}
    answered = {number: n - counted[number] for number, n in _counted(server).items()}
    shares = {number: n / sum(answered.values()) for number, n in answered.items()}
    return Shares(
        told.requests,
        told.seconds,
        tuple(workers[number] for number in sorted(workers)),
        tuple(told.requests * shares[number] for number in sorted(workers)),
        sum(used.values()) - sum(workers.values()),
    )


def _counted(server: Server) -> dict[int, float]:
    """How many polls each worker has answered, once all of them have reported."""
    pause(REPORTED)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.control}/metrics", timeout=30) as answer:
        said = answer.read().decode()
    found = re.findall(r'^forewarn_worker_polls_total{worker="(\d+)"} ([\d.e+]+)$', said, re.M)
    return {int(number): float(n) for number, n in found}


def _by_process(server: Server) -> dict[int, tuple[int | None, float]]:
    """Each process: which of the workers it is, if it is one, and its CPU."""
    found = {}
    for pid in tree(server.process.pid):
        said = re.search(rb"\0worker (\d+)\0", Path(f"/proc/{pid}/cmdline").read_bytes())
        found[pid] = int(said[1]) if said else None, cpu_of(pid)
    return found

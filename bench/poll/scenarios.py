"""What is measured. Servers that are compared run at the same time and are asked in turns, so
that the noise of the machine falls on all of them.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bench.poll import loads
from bench.poll.changes import ChangeTimes
from bench.poll.fleet import Fleet
from bench.poll.loads import Found, Round, generate, generator, wrk
from bench.poll.peers import FOREWARN, NGINX_NAME, PEERS, WITHOUT_FRONT
from bench.poll.processes import LOAD_CORE, Failed, pipe, running
from bench.poll.servers import Server, serving

ONE_SHOT, KEEP_ALIVE = "one-shot", "keep-alive"
FIRST_CONTACT = "first contact"  # no set has ever asked, and all begin at once
UNIQUE, CLIENT_CLOSES = "keep-alive, no two alike", "one-shot, closed by the client"
MANY = 512  # machines that poll at the same time, in the sweep


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    rounds: int = 5
    seconds: int = 2
    starts: int = 5
    crowded: tuple[str, ...] = tuple(PEERS)  # who is asked by a crowd
    crowd: int = 10_000  # connections
    beside: int = 1_000  # good pollers beside as many slow connections
    crowd_seconds: int = 10
    slow_seconds: int = 15  # longer than a head may take, so that slow ones are cut and return
    sizes: tuple[int, ...] = (1, 1_000, 100_000)
    sweep_rounds: int = 4
    changes: int = 100  # a second
    change_seconds: int = 10


QUICK = Plan(
    rounds=1,
    seconds=1,
    starts=1,
    crowded=(FOREWARN, NGINX_NAME),
    crowd_seconds=3,
    slow_seconds=5,
    sizes=(1, 1_000, 10_000),
    sweep_rounds=1,
    change_seconds=3,
)


@dataclass
class Shapes:
    """One-shot and keep-alive, at full speed, from one address or a few."""

    rounds: dict[tuple[str, str], list[Round]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    start_up: dict[str, list[float]] = field(default_factory=dict)  # with one machine

    def ratios(self, shape: str, name: str, to: str) -> list[float]:
        """Of the CPU per poll, round by round: both ran within the same few seconds."""
        pairs = zip(self.rounds[shape, name], self.rounds[shape, to], strict=True)
        return [one.cost / other.cost for one, other in pairs]


def shapes(plan: Plan, scratch: Path) -> Shapes:
    fleet = Fleet(1_000)
    sources = fleet.write_sources(scratch)
    asked: Mapping[str, Callable[[Server], Round]] = {
        ONE_SHOT: lambda server: wrk(server, plan.seconds, close=True),
        KEEP_ALIVE: lambda server: wrk(server, plan.seconds),
        UNIQUE: lambda server: wrk(server, plan.seconds, unique=True),
        CLIENT_CLOSES: lambda server: generate(
            server, sources, mode="oneshot", pollers=loads.WRK_CONNECTIONS, seconds=plan.seconds
        ),
    }
    found = Shapes()
    for _ in range(plan.starts):
        for name in PEERS:
            with serving(name, Fleet(1), scratch) as server:
                found.start_up.setdefault(name, []).append(server.start_up)
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(name, fleet, scratch)) for name in PEERS]
        for server in servers:  # to be warm; does not count
            wrk(server, 1)
        for n in range(plan.rounds):
            for shape, ask in asked.items():
                for server in servers if n % 2 == 0 else reversed(servers):
                    server.check()
                    found.rounds.setdefault((shape, server.name), []).append(ask(server))
            _progress(f"round {n + 1} of {plan.rounds}")
        found.memory = {server.name: server.memory() for server in servers}
    return found


@dataclass(frozen=True)
class Crowd:
    """Many connections at once, each with a poll a second; with slow ones, or without."""

    name: str
    pollers: int
    slow: int
    found: Found
    round: Round
    memory: int  # resident bytes, with the connections
    each: float = 0.0  # bytes of that for one connection, if it was measured


def crowds(plan: Plan, scratch: Path) -> list[Crowd]:
    found = []
    for name in plan.crowded:
        one = _crowd(name, scratch, plan.crowd, 0, plan.crowd_seconds)
        found.append(replace(one, each=_weighed(name, scratch, plan.crowd)))
    one = _crowd(FOREWARN, scratch, plan.crowd, 0, plan.crowd_seconds, acquainted=False)
    return [*found, replace(one, name=f"{FOREWARN}, {FIRST_CONTACT}")]


def slow(plan: Plan, scratch: Path) -> list[Crowd]:
    counts = plan.beside, plan.crowd, plan.slow_seconds
    return [_crowd(name, scratch, *counts) for name in plan.crowded]


def _crowd(
    name: str, scratch: Path, pollers: int, slow: int, seconds: int, *, acquainted: bool = True
) -> Crowd:
    fleet = Fleet(pollers + slow + 1)
    sources = fleet.write_sources(scratch)
    with (
        serving(name, fleet, scratch, acquainted=acquainted) as server,
        generator(
            server, sources, mode="paced", pollers=pollers, slow=slow, seconds=seconds, warm=2
        ) as load,
    ):
        found, round = load.found()
        _progress(f"{pollers + slow:,} connections to {name}")
        return Crowd(name, pollers, slow, found, round, server.memory())


def _weighed(name: str, scratch: Path, connections: int) -> float:
    """Bytes of a server's memory for one connection.

    All come from one machine: what a large fleet left free on the heap would hide them.
    """
    fleet = Fleet(1)
    sources = fleet.write_sources(scratch)
    with serving(name, fleet, scratch) as server:
        wrk(server, 1)  # to be warm
        before = server.memory()
        with generator(server, sources, mode="paced", pollers=connections, seconds=1) as load:
            load.found()
            return (server.memory() - before) / connections


@dataclass
class Sweep:
    """The same polls with fleets of different sizes."""

    sizes: tuple[int, ...]
    names: tuple[str, ...]
    one: dict[tuple[str, int], list[Round]] = field(default_factory=dict)  # from one address
    many: dict[tuple[str, int], list[Round]] = field(default_factory=dict)  # from many
    memory: dict[tuple[str, int], int] = field(default_factory=dict)
    start_up: dict[tuple[str, int], float] = field(default_factory=dict)

    def growth(self, name: str) -> float:
        """CPU per poll with the largest fleet, against the smallest."""
        pairs = zip(self.one[name, self.sizes[-1]], self.one[name, self.sizes[0]], strict=True)
        return statistics.median(large.cost / small.cost for large, small in pairs)


def sweep(plan: Plan, scratch: Path) -> Sweep:
    found = Sweep(plan.sizes, (FOREWARN, NGINX_NAME))
    with contextlib.ExitStack() as stack:
        servers: dict[tuple[str, int], Server] = {}
        for size in plan.sizes:
            for name in found.names:
                server = stack.enter_context(serving(name, Fleet(size), scratch))
                servers[name, size] = server
                found.start_up[name, size] = server.start_up
            _progress(f"{size:,} machines are served")
        for n in range(plan.sweep_rounds):
            for key in servers if n % 2 == 0 else reversed(servers):
                server = servers[key]
                server.check()
                found.one.setdefault(key, []).append(wrk(server, plan.seconds))
                if key[1] >= MANY:
                    sources = Fleet(key[1]).write_sources(scratch)
                    found.many.setdefault(key, []).append(
                        generate(server, sources, mode="flood", pollers=MANY, seconds=plan.seconds)
                    )
        found.memory = {key: server.memory() for key, server in servers.items()}
    return found


@dataclass(frozen=True)
class Changing:
    """Polls while documents change, and while they do not."""

    name: str
    pollers: int
    quiet: tuple[Found, Round]
    changing: tuple[Found, Round]
    times: ChangeTimes

    @property
    def change_cost(self) -> float:
        """Microseconds of CPU that the server needs for one change."""
        more = self.changing[1].cpu - self.quiet[1].cpu
        return more / (self.times.rate * self.changing[1].seconds) * 1e6


def changing(plan: Plan, scratch: Path) -> list[Changing]:
    pollers = 2_000
    fleet = Fleet(pollers + 1)
    sources = fleet.write_sources(scratch)
    found = []
    for name in (FOREWARN, WITHOUT_FRONT):
        if name not in PEERS:
            continue
        with serving(name, fleet, scratch) as server:

            def polled(server: Server = server) -> tuple[Found, Round]:
                seconds = plan.change_seconds
                with generator(
                    server, sources, mode="paced", pollers=pollers, seconds=seconds
                ) as load:
                    return load.found()

            quiet = polled()
            argv = [sys.executable, "-m", "bench.poll.changes", str(server.control)]
            argv += [str(plan.changes), str(fleet.size)]
            log = scratch / "changes.log"
            with running(argv, core=LOAD_CORE, log=log, pipes=True) as changer:
                busy = polled()
                pipe(changer.stdin).close()
                line = pipe(changer.stdout).readline()
            server.check(quiet=False)
            if log.stat().st_size:
                raise Failed(f"the changes stopped: {log.read_text()[-1000:]}")
            times = msgspec.json.decode(line, type=ChangeTimes)
            found.append(Changing(name, pollers, quiet, busy, times))
        _progress(f"{plan.changes} changes a second at {name}")
    return found


def _progress(text: str) -> None:
    sys.stderr.write(f"  {text}\n")

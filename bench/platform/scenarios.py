"""What is measured, and how often: rounds are interleaved, so that noise meets all alike."""

from __future__ import annotations

import contextlib
import socket
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.platform import apply, world
from bench.platform.asking import Peer, Run, Service, Syncs, Weigh, Weight, service
from bench.platform.decisions import Round
from bench.platform.disk import Least
from bench.platform.visible import Seen
from bench.platform.visible import visible as seen_in_polls
from bench.platform.world import MEMORY, SQLITE
from bench.poll.fleet import POLL
from bench.poll.processes import Failed

STORES = (SQLITE, MEMORY)
KINDS = ("Freeze", "Redeploy")
ALIKE = 100  # machines of a group, where sizes of fleets are compared
FEW = 8  # callers there: never two in one group


@dataclass(frozen=True)
class Plan:
    rounds: int = 5
    seconds: float = 1.5
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)
    callers: tuple[int, ...] = (1, 32, 512)
    cost_rounds: int = 12
    cost_seconds: float = 0.5
    samples: int = 1_000
    idle: int = 100_000
    applied: int = 100_000
    applies: int = 3


QUICK = Plan(
    rounds=2,
    seconds=0.5,
    sizes=(1_000, 10_000),
    cost_rounds=3,
    cost_seconds=0.25,
    samples=50,
    idle=10_000,
    applied=10_000,
    applies=1,
)


@dataclass
class Decided:
    rounds: dict[tuple[str, int, int], list[Round]] = field(default_factory=dict)
    peers: dict[tuple[int, int], list[Least]] = field(default_factory=dict)  # on SQLite
    syncs: list[float] = field(default_factory=list)

    def ratios(self, size: int, callers: int) -> list[float]:
        """Of the peer's rate, round by round."""
        ours, theirs = self.rounds[SQLITE, size, callers], self.peers[size, callers]
        return [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]


def decisions(plan: Plan, scratch: Path) -> Decided:
    found = Decided()
    for store in STORES:
        with contextlib.ExitStack() as stack:
            services = _services(stack, store, plan.sizes, None, scratch / f"decisions-{store}")
            for size in plan.sizes:
                services[size].ask(Run(32, plan.seconds), Round)  # to get warm
            for _ in range(plan.rounds):
                for size in plan.sizes:
                    _round(found, store, size, services[size], plan)
    return found


def _round(found: Decided, store: str, size: int, one: Service, plan: Plan) -> None:
    if store == SQLITE:
        found.syncs.append(one.ask(Syncs(0.3), float))
    for callers in plan.callers:
        ours = one.ask(Run(callers, plan.seconds), Round)
        found.rounds.setdefault((store, size, callers), []).append(ours)
        if store == SQLITE:
            peer = one.ask(Peer(ours.sizes, plan.seconds / 2), Least)
            found.peers.setdefault((size, callers), []).append(peer)


@dataclass
class Costs:
    sizes: tuple[int, ...]
    rounds: dict[tuple[str, str, int], list[Round]] = field(default_factory=dict)

    def growth(self, store: str, kind: str, size: int) -> float:
        """Against the smallest, in the same round: the median."""
        ours, base = self.rounds[store, kind, size], self.rounds[store, kind, self.sizes[0]]
        return statistics.median(
            one.cost / other.cost for one, other in zip(ours, base, strict=True)
        )


def costs(plan: Plan, scratch: Path) -> Costs:
    found = Costs(plan.sizes)
    for store in STORES:
        with contextlib.ExitStack() as stack:
            services = _services(stack, store, plan.sizes, ALIKE, scratch / f"costs-{store}")
            for number in range(plan.cost_rounds + 1):
                for kind in KINDS:
                    for size in plan.sizes:
                        done = services[size].ask(Run(FEW, plan.cost_seconds, kind), Round)
                        if number:  # the first is to get warm
                            found.rounds.setdefault((store, kind, size), []).append(done)
    return found


def _services(
    stack: contextlib.ExitStack,
    store: str,
    sizes: Sequence[int],
    each: int | None,
    directory: Path,
) -> dict[int, Service]:
    """All at once, of which only one is asked at a time."""
    made = {}
    for size in sizes:
        room = directory / str(size)
        room.mkdir(parents=True)
        arguments = (store, size, each or world.per_group(size), room, False)
        made[size] = stack.enter_context(
            service("bench.platform.serving", *arguments, log=room / "log")
        )
    return made


def visible(plan: Plan, scratch: Path) -> list[Seen]:
    return seen_in_polls(plan.samples, scratch, STORES)


@dataclass
class Idle:
    machines: int
    applied: Weight  # right after a fleet was applied
    loaded: Weight  # after a restart
    polled: Weight  # and after every machine has polled
    traced: Weight  # the same two, as Python counts it
    traced_polled: Weight


def idle(plan: Plan, scratch: Path) -> Idle:
    directory = scratch / "idle"
    directory.mkdir()
    applied, _ = _weighed(plan.idle, directory, traced=False, polls=False)
    loaded, polled = _weighed(plan.idle, directory, traced=False)
    traced, traced_polled = _weighed(plan.idle, directory, traced=True)
    return Idle(plan.idle, applied, loaded, polled, traced, traced_polled)


def _weighed(
    machines: int, directory: Path, *, traced: bool, polls: bool = True
) -> tuple[Weight, Weight]:
    arguments = (machines, directory, traced)
    with service("bench.platform.idle", *arguments, log=directory / "log") as one:
        url = one.hear(dict[str, str])["url"]
        weight = one.ask(Weigh(), Weight)
        if not polls:
            return weight, weight
        for n in range(machines):
            _poll_once(url, world.address(n))
        return weight, one.ask(Weigh(), Weight)


def _poll_once(url: str, source: str) -> None:
    parts = urlsplit(url)
    where = (parts.hostname or "", parts.port or 80)
    with socket.create_connection(where, 30, (source, 0)) as connection:
        connection.sendall(
            f"GET {POLL} HTTP/1.1\r\nHost: service\r\nMetadata: true\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if not connection.recv(65_536).startswith(b"HTTP/1.1 200 "):
            raise Failed(f"a poll from {source} was not answered 200")


@dataclass
class Applied:
    runs: list[dict[str, Any]] = field(default_factory=list)
    peers: list[tuple[float, float]] = field(default_factory=list)  # seconds, MiB


def applies(plan: Plan, scratch: Path) -> Applied:
    found = Applied()
    for _ in range(plan.applies):
        found.peers.append(apply.peer(plan.applied))
        found.runs.append(apply.measure(plan.applied, scratch))
    return found

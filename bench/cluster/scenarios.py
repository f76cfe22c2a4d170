"""What is measured, and how often: rounds alternate, so that noise meets both alike."""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.cluster.databases import server
from bench.cluster.follower import Known
from bench.cluster.leader import Decided
from bench.platform.asking import Run, Service, service
from bench.platform.decisions import Round
from bench.platform.meter import stopwatch
from bench.platform.world import SQLITE, per_group
from bench.poll.processes import LOAD_CORE, running

MACHINES = 1_000
CALLERS = 32
FOLLOWERS = 3
EASY = 29  # added to the niceness of followers: they come last


@dataclass(frozen=True)
class Plan:
    rounds: int = 15
    seconds: float = 2.0
    follower_rounds: int = 9
    lag_rounds: int = 9
    events: int = 120  # in each of them


QUICK = Plan(rounds=3, seconds=0.5, follower_rounds=2, lag_rounds=2, events=50)


@dataclass(frozen=True)
class Compared:
    """Rounds of ours, and those of the peer beside them."""

    ours: Sequence[Round]
    peers: Sequence[Round]

    @property
    def rates(self) -> list[float]:
        return [one.rate / peer.rate for one, peer in self._pairs()]

    @property
    def costs(self) -> list[float]:
        return [one.cost / peer.cost for one, peer in self._pairs()]

    def _pairs(self) -> Iterator[tuple[Round, Round]]:
        return zip(self.ours, self.peers, strict=True)


@dataclass(frozen=True)
class Followed(Compared):
    """By a leader with followers, and the same one alone."""

    late: Sequence[float]  # seconds after each round until all followers had its last commit


@dataclass(frozen=True)
class Lag:
    """Of one round, in seconds."""

    commits: Sequence[float]
    behind: Sequence[float]

    @property
    def ratio(self) -> float:
        return percentile(self.behind, 99) / statistics.median(self.commits)


def percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def decisions(plan: Plan, scratch: Path) -> Compared:
    return _against_sqlite(plan, scratch, CALLERS)


def one_caller(plan: Plan, scratch: Path) -> Compared:
    return _against_sqlite(plan, scratch, 1)


def standby(plan: Plan, scratch: Path) -> Compared:
    return _against_sqlite(plan, scratch, CALLERS, standby=True)


def _against_sqlite(plan: Plan, scratch: Path, callers: int, *, standby: bool = False) -> Compared:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(server(scratch / "server", standby=standby))
        ours = stack.enter_context(_service(database.new_state(), scratch / "postgres"))
        peer = stack.enter_context(_service(SQLITE, scratch / "sqlite"))
        run = Run(callers, plan.seconds)
        for one in (ours, peer):
            one.ask(run, Round)  # to get warm
        rounds: dict[Service, list[Round]] = {ours: [], peer: []}
        order = [ours, peer]
        for _ in range(plan.rounds):
            for one in order:
                rounds[one].append(one.ask(run, Round))
            order.reverse()
        return Compared(rounds[ours], rounds[peer])


def followers(plan: Plan, scratch: Path) -> Followed:
    """The same leader, with and without them in turns."""
    followed: list[Round] = []
    alone: list[Round] = []
    late: list[float] = []
    run = Run(CALLERS, plan.seconds)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(server(scratch / "server"))
        url = database.new_state()
        leader = stack.enter_context(_service(url, scratch / "postgres"))
        leader.ask(run, Round)  # to get warm
        for number in range(plan.follower_rounds):
            with contextlib.ExitStack() as round:
                started = [
                    round.enter_context(_follower(url, f"f{number}-{n}", scratch, nice=EASY))
                    for n in range(FOLLOWERS)
                ]
                for follower in started:
                    follower.hear(str)  # it follows
                followed.append(leader.ask(run, Round))
                end, last = stopwatch(), _last_commit(url)
                known = [follower.ask(last, Known).commits[last] for follower in started]
                late.append(max(known) - end)
            alone.append(leader.ask(run, Round))
    return Followed(followed, alone, late)


def lag(plan: Plan, scratch: Path) -> list[Lag]:
    found: list[Lag] = []
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(server(scratch / "server"))
        url = database.new_state()
        leader = stack.enter_context(
            service("bench.cluster.leader", url, MACHINES, log=scratch / "leader.log")
        )
        leader.ask(plan.events, Decided)  # to get warm
        for number in range(plan.lag_rounds):
            with _follower(url, f"f{number}", scratch) as follower:
                follower.hear(str)  # it follows
                decided = leader.ask(plan.events, Decided)
                known = follower.ask(max(decided.known), Known).commits
            behind = [known[seq] - at for seq, at in decided.known.items()]
            found.append(Lag(decided.took, behind))
    return found


def _service(kind: str, room: Path) -> contextlib.AbstractContextManager[Service]:
    room.mkdir()
    arguments = (kind, MACHINES, per_group(MACHINES), room, False)
    return service("bench.platform.serving", *arguments, log=room / "log")


@contextlib.contextmanager
def _follower(url: str, name: str, scratch: Path, *, nice: int = 0) -> Iterator[Service]:
    """On the core of the server."""
    argv = ["nice", "-n", str(nice), sys.executable, "-m", "bench.cluster.follower", url, name]
    log = scratch / f"{name}.log"
    with running(argv, core=LOAD_CORE, log=log, pipes=True) as process:
        yield Service(process)


def _last_commit(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT max(seq) FROM commits").fetchone()
    assert row is not None
    return int(row[0])

"""`make bench BENCH=cluster`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.cluster.lag import Lag
from bench.platform.asking import Run, Service, service
from bench.platform.decisions import Round
from bench.platform.world import SQLITE, per_group
from bench.poll import processes
from bench.poll.report import table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "tests"))
from helpers.postgres import Server  # noqa: E402

RESULTS = HERE / "RESULTS.md"
MACHINES = 1_000
FOLLOWERS = 3
STANDBY = "standby"


@dataclass(frozen=True)
class Plan:
    rounds: int = 7
    seconds: float = 2.0
    commits: int = 1_000


QUICK = Plan(rounds=2, seconds=0.5, commits=100)


@dataclass(frozen=True)
class Line:
    what: str
    wanted: str
    holds: Callable[[float], bool]
    ratios: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    def row(self) -> tuple[str, ...]:
        spread = f"{min(self.ratios):.2f}–{max(self.ratios):.2f}"
        verdict = "yes" if self.holds(self.median) else "no"
        return self.what, self.wanted, f"{self.median:.2f} ×", spread, verdict


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    said = parser.parse_args()
    processes.prepare()
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=said.within) as scratch:
        Path(scratch).chmod(0o755)
        lines = measure(QUICK if said.quick else Plan(), Path(scratch))
    text = table(("what", "wanted", "found", "from–to", "held"), [line.row() for line in lines])
    load = os.getloadavg()[0]
    heading = (
        f"# Several control nodes on PostgreSQL\n\nPython {platform.python_version()},"
        f" {os.cpu_count()} cores ({platform.machine()}), load {load:.1f}. Ratios of rounds that"
        f" alternate, {MACHINES:,} machines; PostgreSQL on the same machine and disk as SQLite.\n"
    )
    sys.stdout.write(f"{heading}\n{text}\n")
    if not said.quick:
        RESULTS.write_text(f"{heading}\n{text}\n")


def measure(plan: Plan, scratch: Path) -> list[Line]:
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(server(scratch / "alone"))
        replicated = stack.enter_context(server(scratch / "primary", standby=scratch / STANDBY))
        sqlite = started(stack, SQLITE, scratch / "sqlite")
        postgres = started(stack, url := alone.new_state(), scratch / "postgres")
        both = started(stack, replicated.new_state(), scratch / "replicated")
        for one in (sqlite, postgres, both):
            one.ask(Run(32, plan.seconds), Round)  # to get warm
        rounds: dict[str, list[Round]] = {}
        for _ in range(plan.rounds):
            for name, one, callers in (
                ("sqlite 32", sqlite, 32),
                ("postgres 32", postgres, 32),
                ("replicated 32", both, 32),
                ("sqlite 1", sqlite, 1),
                ("postgres 1", postgres, 1),
            ):
                done = one.ask(Run(callers, plan.seconds), Round)
                rounds.setdefault(name, []).append(done)
        followed: list[Round] = []
        lonely: list[Round] = []
        for _ in range(plan.rounds):
            lonely.append(postgres.ask(Run(32, plan.seconds), Round))
            with followers(url):
                followed.append(postgres.ask(Run(32, plan.seconds), Round))
        lag = measured_lag(alone.new_state(), plan.commits)

    def rates(ours: list[Round], theirs: list[Round]) -> list[float]:
        return [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]

    costs = zip(rounds["postgres 32"], rounds["sqlite 32"], strict=True)
    p99 = statistics.quantiles(lag.behind, n=100)[98]
    return [
        Line(
            "durable decisions, 32 callers, against SQLite",
            "≥ 0.7 ×",
            lambda found: found >= 0.7,
            rates(rounds["postgres 32"], rounds["sqlite 32"]),
        ),
        Line(
            "the same, 1 caller",
            "≥ 0.3 ×",
            lambda found: found >= 0.3,
            rates(rounds["postgres 1"], rounds["sqlite 1"]),
        ),
        Line(
            "with a synchronous standby, 32 callers",
            "≥ 0.5 ×",
            lambda found: found >= 0.5,
            rates(rounds["replicated 32"], rounds["sqlite 32"]),
        ),
        Line(
            "CPU of an event, against SQLite",
            "≤ 1.2 ×",
            lambda found: found <= 1.2,
            [ours.cost / theirs.cost for ours, theirs in costs],
        ),
        Line(
            f"a leader with {FOLLOWERS} followers, against none",
            "≥ 0.9 ×",
            lambda found: found >= 0.9,
            rates(followed, lonely),
        ),
        Line(
            "lag of a follower, p99, against the median of a commit",
            "≤ 1 ×",
            lambda found: found <= 1.0,
            [p99 / statistics.median(lag.commits)],
        ),
    ]


def started(stack: contextlib.ExitStack, kind: str, room: Path) -> Service:
    room.mkdir()
    arguments = (kind, MACHINES, per_group(MACHINES), room, False)
    return stack.enter_context(service("bench.platform.serving", *arguments, log=room / "log"))


@contextlib.contextmanager
def server(directory: Path, standby: Path | None = None) -> Iterator[Server]:
    """A server, with a synchronous standby on the same disk if there is a place for one."""
    directory.mkdir()
    names = [f"synchronous_standby_names={STANDBY}"] if standby else []
    primary = Server(directory, *names)
    primary.create()
    primary.start()
    try:
        with contextlib.ExitStack() as stack:
            if standby is not None:
                stack.enter_context(following(primary, standby))
            yield primary
    finally:
        primary.stop()


@contextlib.contextmanager
def following(primary: Server, directory: Path) -> Iterator[None]:
    directory.mkdir()
    standby = Server(directory)
    standby.own()
    standby.run(
        *("pg_basebackup", "-R", "-D", str(standby.data), "-h", str(primary.directory)),
        *("-U", "forewarn", "-d", f"application_name={STANDBY}", "-c", "fast"),
    )
    standby.start()
    try:
        yield
    finally:
        standby.stop()


@contextlib.contextmanager
def followers(url: str) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.cluster.follower", url]
    started = [
        subprocess.Popen([*command, f"f{n}"], stdout=subprocess.PIPE) for n in range(FOLLOWERS)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measured_lag(url: str, commits: int) -> Lag:
    command = [sys.executable, "-m", "bench.cluster.lag", url, str(commits)]
    done = subprocess.run(command, check=True, capture_output=True)
    return msgspec.convert(json.loads(done.stdout), Lag)


if __name__ == "__main__":
    main()

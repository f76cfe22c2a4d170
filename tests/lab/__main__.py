"""The lab at length, with faults in any order, on one PostgreSQL server or on Patroni."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from forewarn.support import guard
from lab.nemesis import ON_A_SINGLE_SERVER, ON_PATRONI, Nemesis
from lab.run import Run
from lab.world import PatroniCluster, SingleServer, World

HOLD = (0.5, 20.0)  # seconds
LEASE = {"single": "2s", "patroni": "12s"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--database", choices=("single", "patroni"), default="single")
    parser.add_argument("--seed", type=int, default=guard.wall_us() % 1_000_000)
    asked = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("it needs root, for networks of its own")
    database = SingleServer() if asked.database == "single" else PatroniCluster()
    faults = ON_A_SINGLE_SERVER if asked.database == "single" else ON_PATRONI
    end = guard.monotonic() + asked.minutes * 60
    with (
        tempfile.TemporaryDirectory(prefix="forewarn-lab-") as room,
        database,
        World(Path(room), database, LEASE[asked.database]) as world,
    ):
        with Run(world, asked.seed) as run:
            run.happen(_until(end, faults, asked.seed), HOLD)
        findings = run.findings()
        say(run.table())
    say("\n".join(findings) or "nothing was lost, early, twice, uninformed, backwards or refused")
    return 1 if findings else 0


def _until(end: float, faults: list[Nemesis], seed: int) -> Iterator[Nemesis]:
    chance = Random(seed)
    while guard.monotonic() < end:
        fault = chance.choice(faults)
        say(f"{max(0.0, end - guard.monotonic()):6.0f} s left: {fault.__name__}")
        yield fault


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

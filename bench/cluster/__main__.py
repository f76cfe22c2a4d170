"""`make bench BENCH=cluster`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.cluster import databases, report, scenarios
from bench.cluster.scenarios import QUICK, Plan
from bench.platform import disk
from bench.poll import processes, tools
from bench.poll.processes import Failed
from forewarn import __version__

HERE = Path(__file__).parent
NICE = -10
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"


@dataclass(frozen=True)
class Scenario:
    title: str
    run: Callable[[Plan, Path], Any]
    show: Callable[[Any], str]


SCENARIOS: Mapping[str, Scenario] = {
    "decisions": Scenario("32 callers", scenarios.decisions, report.against_sqlite),
    "one-caller": Scenario("1 caller", scenarios.one_caller, report.against_sqlite),
    "standby": Scenario(
        "32 callers, a synchronous standby", scenarios.standby, report.against_sqlite
    ),
    "followers": Scenario("A leader with followers", scenarios.followers, report.followers),
    "lag": Scenario("How far a follower is behind", scenarios.lag, report.lag),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario, which is not written down")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no server is left behind
    try:
        keep = not (said.quick or said.only)
        _measure(QUICK if said.quick else Plan(), said.only, said.within, keep=keep)
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _measure(plan: Plan, only: str | None, within: Path, *, keep: bool) -> None:
    processes.prepare()
    with contextlib.suppress(PermissionError):
        os.nice(NICE)  # others may be at work here; what we start inherits it
    found: dict[str, Any] = {}
    shown: list[str] = []
    began = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=within) as scratch:
        Path(scratch).chmod(0o755)  # the server runs as somebody else
        for name, scenario in SCENARIOS.items():
            if only in (None, name):
                room = Path(scratch) / name
                room.mkdir()
                found[name] = scenario.run(plan, room)
                shown.append(f"## {scenario.title}\n\n{scenario.show(found[name])}\n")
                _say(shown[-1])
        heading = _heading(disk.where(Path(scratch)), began)
    judgement = f"## Targets\n\n{report.judged(found)}\n"
    _say(f"{heading}\n{judgement}")
    if keep:
        RESULTS.write_text("\n".join([heading, judgement, *shown, NOTES.read_text()]))


def _heading(where: str, began: tuple[float, float, float]) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    lines = [
        *("# What several control nodes on PostgreSQL cost", ""),
        f"Written by `make bench BENCH=cluster` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()},"
        f" PostgreSQL {databases.version()}, psycopg {version('psycopg')},"
        f" SQLite {sqlite3.sqlite_version}",
        f"- disk, the same for both: {where}; PostgreSQL as it comes, over TCP on loopback;"
        " SQLite with `synchronous=FULL`, write-ahead log",
        f"- what is measured on core {processes.SERVER_CORE}; PostgreSQL, its standby and"
        f" followers on core {processes.LOAD_CORE}; niceness {os.nice(0)}; load average, ours"
        f" included: {load}",
        f"- {scenarios.MACHINES:,} machines; rounds alternate, ratios are of two rounds beside each"
        " other, medians, and how far they spread",
    ]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

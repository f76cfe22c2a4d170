"""`make bench BENCH=cluster`: measures, prints, and writes each part that was measured in full into
RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.cluster import databases, host_report, host_scenarios, report, scenarios
from bench.cluster.report import Target
from bench.platform import disk
from bench.poll import processes, tools
from bench.poll.processes import Failed
from forewarn import __version__

HERE = Path(__file__).parent
NICE = -10
RESULTS = HERE / "RESULTS.md"


@dataclass(frozen=True)
class Scenario:
    title: str
    run: Callable[[Any, Path], Any]
    show: Callable[[Any], str]


@dataclass(frozen=True)
class Part:
    """What has a plan, a page and notes of its own."""

    title: str
    plan: object
    quick: object
    scenarios: Mapping[str, Scenario]
    targets: Callable[[Mapping[str, Any]], Iterable[Target]]
    conditions: Callable[[str], str]  # of a disk
    notes: Path


PARTS: Mapping[str, Part] = {
    "databases": Part(
        "What several control nodes on PostgreSQL cost",
        scenarios.Plan(),
        scenarios.QUICK,
        {
            "decisions": Scenario("32 callers", scenarios.decisions, report.against_sqlite),
            "one-caller": Scenario("1 caller", scenarios.one_caller, report.against_sqlite),
            "standby": Scenario(
                "32 callers, a synchronous standby", scenarios.standby, report.against_sqlite
            ),
            "followers": Scenario("A leader with followers", scenarios.followers, report.followers),
            "lag": Scenario("How far a follower is behind", scenarios.lag, report.lag),
        },
        report.targets,
        lambda disk: (
            f"- disk, the same for both: {disk}; PostgreSQL {databases.version()} as it comes, over"
            f" TCP on loopback, psycopg {version('psycopg')}; SQLite {sqlite3.sqlite_version} with"
            " `synchronous=FULL`, write-ahead log\n"
            f"- what is measured on core {processes.SERVER_CORE}; PostgreSQL, its standby and"
            f" followers on core {processes.LOAD_CORE}\n"
            f"- {scenarios.MACHINES:,} machines"
        ),
        HERE / "NOTES.md",
    ),
    "hosts": Part(
        "What the endpoint on every host costs",
        host_scenarios.HostPlan(),
        host_scenarios.QUICK,
        {
            "polls": Scenario("Polls", host_scenarios.polls, host_report.polls),
            "publish": Scenario(
                "Publishing to nodes, 32 callers", host_scenarios.publishing, host_report.publishing
            ),
            "publish-one": Scenario(
                "Publishing to nodes, 1 caller",
                host_scenarios.publishing_one,
                host_report.publishing,
            ),
            "seen": Scenario("From raised to seen", host_scenarios.seen, host_report.seen),
            "silent": Scenario("Beside a silent node", host_scenarios.silent, host_report.silent),
            "many": Scenario("Many nodes", host_scenarios.many, host_report.many),
        },
        host_report.targets,
        lambda disk: (
            f"- disk: {disk}; SQLite {sqlite3.sqlite_version} with `synchronous=FULL`, write-ahead"
            " log\n"
            f"- what is measured on core {processes.SERVER_CORE}; what it talks to on core"
            f" {processes.LOAD_CORE}"
        ),
        HERE / "HOST_NOTES.md",
    ),
}
SCENARIOS = tuple(name for part in PARTS.values() for name in part.scenarios)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--part", choices=PARTS, help="one part of what is written down")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario, which is not written down")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no server is left behind
    try:
        processes.prepare()
        with contextlib.suppress(PermissionError):
            os.nice(NICE)  # others may be at work here; what we start inherits it
        for name, part in PARTS.items():
            if options.part in (None, name) and (
                options.only is None or options.only in part.scenarios
            ):
                page = _measure(part, options.only, options.within, quick=options.quick)
                if not (options.quick or options.only):
                    _write(part, page)
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _measure(part: Part, only: str | None, within: Path, *, quick: bool) -> str:
    """Return the page."""
    found: dict[str, Any] = {}
    shown: list[str] = []
    began = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="bench-cluster-", dir=within) as scratch:
        Path(scratch).chmod(0o755)  # the server runs as somebody else
        for name, scenario in part.scenarios.items():
            if only in (None, name):
                room = Path(scratch) / name
                room.mkdir()
                found[name] = scenario.run(part.quick if quick else part.plan, room)
                shown.append(f"## {scenario.title}\n\n{scenario.show(found[name])}\n")
                _say(shown[-1])
        heading = _heading(part, disk.where(Path(scratch)), began)
    judgement = f"## Targets\n\n{report.judged(part.targets(found))}\n"
    _say(f"{heading}\n{judgement}")
    return "\n".join([heading, judgement, *shown, part.notes.read_text()])


def _write(part: Part, page: str) -> None:
    """Replace the page of a part, and leave those of others as they are."""
    text = RESULTS.read_text() if RESULTS.exists() else ""
    pages = dict(re.findall(r"(?ms)^# ([^\n]+)(.*?)(?=^# |\Z)", text))
    pages[part.title] = page.removeprefix(f"# {part.title}")
    written = (f"# {one.title}{pages[one.title]}" for one in PARTS.values() if one.title in pages)
    RESULTS.write_text("\n".join(page.rstrip() + "\n" for page in written))


def _heading(part: Part, where: str, began: tuple[float, float, float]) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    lines = [
        *(f"# {part.title}", ""),
        f"Written by `make bench BENCH=cluster` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()}",
        part.conditions(where),
        f"- niceness {os.nice(0)}; load average, ours included: {load}",
        "- rounds alternate, ratios are of two rounds beside each other, medians, and how far they"
        " spread",
    ]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

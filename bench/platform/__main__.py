"""`make bench BENCH=platform`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.platform import disk, report, scenarios
from bench.platform.scenarios import QUICK, Plan
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
    "decisions": Scenario("Decisions, made durable", scenarios.decisions, report.decisions),
    "cost": Scenario("An event over the size of the fleet", scenarios.costs, report.costs),
    "visible": Scenario("From a decision to a poll", scenarios.visible, report.visible),
    "idle": Scenario("Memory of idle machines", scenarios.idle, report.idle),
    "apply": Scenario("Applying a fleet", scenarios.applies, report.applies),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.platform", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario, which is not written down")
    parser.add_argument("--within", type=Path, default=Path("/var/tmp"), help="on a real disk")
    options = parser.parse_args()
    try:
        keep = not (options.quick or options.only)
        _measure(QUICK if options.quick else Plan(), options.only, options.within, keep=keep)
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
    with tempfile.TemporaryDirectory(prefix="bench-platform-", dir=within) as scratch:
        for name, scenario in SCENARIOS.items():
            if only in (None, name):
                found[name] = scenario.run(plan, Path(scratch))
                shown.append(f"## {scenario.title}\n\n{scenario.show(found[name])}\n")
                _say(shown[-1])
        heading = _heading(disk.where(Path(scratch)), began)
    judgement = f"## Targets\n\n{report.judged(found)}\n"
    _say(f"{heading}\n{judgement}")
    if keep:
        RESULTS.write_text("\n".join([heading, judgement, *shown, NOTES.read_text()]))


def _heading(where: str, began: tuple[float, float, float]) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    python = "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"
    lines = [
        *("# What the platform costs", ""),
        f"Written by `make bench BENCH=platform` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()} ({python}),"
        f" SQLite {sqlite3.sqlite_version}",
        f"- disk: {where}; `synchronous=FULL`, write-ahead log",
        f"- what is measured on core {processes.SERVER_CORE}, who asks on core"
        f" {processes.LOAD_CORE}, niceness {os.nice(0)}; load average, ours included: {load}",
        "- rounds interleaved, medians, and how far they spread",
    ]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

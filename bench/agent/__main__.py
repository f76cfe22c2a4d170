"""`make bench BENCH=agent`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from bench.agent.subjects import AGENT, CURL, POLLING, SUBJECTS, URLLIB, Sample, Subject
from bench.platform.meter import pause, stopwatch
from bench.poll import tools
from bench.poll.report import table
from forewarn import __version__
from forewarn.testing import Service

HERE = Path(__file__).parent
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"
NICE = -10


class Size(NamedTuple):
    window: float  # seconds
    windows: int
    settle: float  # seconds before the first


FULL, QUICK = Size(20.0, 9, 15.0), Size(5.0, 2, 3.0)
MOST_CPU = 0.2  # per cent of a core
MOST_MEMORY = 40.0  # MiB resident

Found = dict[str, tuple[list[float], Sample]]  # per cent of a core in each window; the last sample


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a moment, to see that it works")
    options = parser.parse_args()
    structlog.configure(processors=[_drop])
    with contextlib.suppress(PermissionError):
        os.nice(NICE)  # others may be at work here
    began = os.getloadavg()
    size = QUICK if options.quick else FULL
    found = _measured(size)
    text = "\n".join(
        [
            _heading(began, size),
            f"## Targets\n\n{_judged(found)}\n",
            f"## Idle, side by side\n\n{_table(found)}\n",
        ]
    )
    sys.stdout.write(f"{text}\n")
    if not options.quick:
        RESULTS.write_text(f"{text}\n{NOTES.read_text()}")


def _drop(_logger: object, _method: str, _event: object) -> str:
    raise structlog.DropEvent


def _measured(size: Size) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="forewarn-bench-") as scratch,
        Service(real_time=True, sockets=True, front=True) as service,
    ):
        url = service.scale_set("web", 3)[0].url
        subjects = [Subject(name, url, Path(scratch)) for name in SUBJECTS]
        try:
            pause(size.settle)
            spent: dict[str, list[float]] = {name: [] for name in SUBJECTS}
            before = _samples(subjects)
            for _ in range(size.windows):
                pause(size.window)
                after = _samples(subjects)
                for name, (at, sample) in after.items():
                    then, was = before[name]
                    spent[name].append((sample.cpu - was.cpu) / (at - then) * 100)
                before = after
            return {name: (spent[name], sample) for name, (_, sample) in before.items()}
        finally:
            for subject in subjects:
                subject.stop()


def _samples(subjects: Sequence[Subject]) -> dict[str, tuple[float, Sample]]:
    return {subject.name: (stopwatch(), subject.sample()) for subject in subjects}


def _judged(found: Found) -> str:
    rows = []
    for name in (AGENT, POLLING):
        spent, sample = found[name]
        cpu, memory = statistics.median(spent), sample.rss / 2**20
        wanted = f"below {MOST_CPU:g} %", f"below {MOST_MEMORY:g} MiB"
        rows.append((f"{name}: of a core", wanted[0], f"{cpu:.3f} %", _met(cpu < MOST_CPU)))
        rows.append((f"{name}: memory", wanted[1], f"{memory:.1f} MiB", _met(memory < MOST_MEMORY)))
    return table(("target", "wanted", "measured", "met"), rows)


def _met(so: bool) -> str:
    return "yes" if so else "no"


def _table(found: Found) -> str:
    rows = []
    for name, (spent, sample) in found.items():
        median = statistics.median(spent)
        rows.append(
            (
                *(name, f"{median:.3f}", f"{min(spent):.3f}–{max(spent):.3f}"),
                *(f"{median / statistics.median(found[peer][0]):.2f}" for peer in (CURL, URLLIB)),
                *(f"{sample.rss / 2**20:.1f}", f"{sample.pss / 2**20:.1f}"),
            )
        )
    head = ("what", "% of a core", "from–to", f"× {CURL}", f"× {URLLIB}", "RSS, MiB", "PSS, MiB")
    return table(head, rows)


def _heading(began: tuple[float, float, float], size: Size) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    python = "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"
    lines = [
        *("# What the agent costs while nothing happens", ""),
        f"Written by `make bench BENCH=agent` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()} ({python})",
        f"- niceness {os.nice(0)}; load average, ours included: {load}",
        f"- {size.windows} windows of {size.window:g} s, all at the same time; medians and spread",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

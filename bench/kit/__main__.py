"""`make bench BENCH=kit`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import structlog

from bench.kit.subjects import IMPORTED, STARTED, Times, imported, start
from bench.poll import tools
from bench.poll.report import table
from forewarn import __version__

HERE = Path(__file__).parent
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"
NICE = -10
STARTS, IMPORTS = 50, 9  # rounds
READY = 50.0  # ms after the import, at most
PEER, IMPORT_PEER = "uvicorn", "import uvicorn"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kit", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a moment, to see that it works")
    options = parser.parse_args()
    structlog.configure(processors=[_drop])
    with contextlib.suppress(PermissionError):
        os.nice(NICE)  # others may be at work here
    began = os.getloadavg()
    starts = _starts(5 if options.quick else STARTS)
    imports = _imports(2 if options.quick else IMPORTS)
    text = "\n".join(
        [
            _heading(began),
            f"## Targets\n\n{_judged(starts)}\n",
            f"## From nothing to ready, and back\n\n{_started(starts)}\n",
            f"## Imports, in a new process\n\n{_import_table(imports)}\n",
        ]
    )
    sys.stdout.write(f"{text}\n")
    if not options.quick:
        RESULTS.write_text(f"{text}\n{NOTES.read_text()}")


def _drop(_logger: object, _method: str, _event: object) -> str:
    raise structlog.DropEvent


def _starts(rounds: int) -> dict[str, list[Times]]:
    """Rounds interleaved, so that what else goes on meets all alike."""
    for name in STARTED:
        start(name)  # the first one imports
    found: dict[str, list[Times]] = {name: [] for name in STARTED}
    for _ in range(rounds):
        for name, times in found.items():
            times.append(start(name))
    return found


def _imports(rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in IMPORTED}
    for _ in range(rounds):
        for name, times in found.items():
            times.append(imported(name))
    return found


def _judged(starts: dict[str, list[Times]]) -> str:
    ready = sorted(one.ready for one in starts["Service()"])
    rows = []
    for what, value in (
        ("median", statistics.median(ready)),
        ("nine of ten", ready[len(ready) * 9 // 10]),
    ):
        met = "yes" if value <= READY else "no"
        name = f"`Service()` is ready after the import, {what}"
        rows.append((name, f"at most {READY:g} ms", f"{value:.1f} ms", met))
    return table(("target", "wanted", "measured", "met"), rows)


def _started(found: dict[str, list[Times]]) -> str:
    peer = [one.cpu for one in found[PEER]]
    rows = []
    for name, times in found.items():
        spent = [one.cpu for one in times]
        ratios = [one / other for one, other in zip(spent, peer, strict=True)]
        rows.append(
            (
                *(f"`{name}`", _median([one.ready for one in times])),
                *(_range([one.ready for one in times]), _median([one.over for one in times])),
                *(_median(spent), _range(spent), f"{statistics.median(ratios):.2f}"),
            )
        )
    head = ("what", "ready, ms", "from–to", "and stopped, ms", "CPU, ms", "from–to", f"× {PEER}")
    return table(head, rows)


def _import_table(found: dict[str, list[float]]) -> str:
    peer = found[IMPORT_PEER]
    rows = []
    for name, times in found.items():
        ratios = [one / other for one, other in zip(times, peer, strict=True)]
        rows.append(
            (f"`{name}`", _median(times), _range(times), f"{statistics.median(ratios):.2f}")
        )
    return table(("what", "CPU, ms", "from–to", f"× `{IMPORT_PEER}`"), rows)


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.1f}–{max(values):.1f}"


def _heading(began: tuple[float, float, float]) -> str:
    load = f"{began[0]:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end"
    python = "the distribution's" if sys.base_prefix == "/usr" else "not the distribution's"
    lines = [
        *("# What the test kit costs", ""),
        f"Written by `make bench BENCH=kit` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}"),
        f"- versions: forewarn {__version__}, Python {platform.python_version()} ({python}),"
        f" uvicorn {version('uvicorn')}",
        f"- niceness {os.nice(0)}; load average, ours included: {load}",
        "- rounds interleaved, medians, and how far they spread",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

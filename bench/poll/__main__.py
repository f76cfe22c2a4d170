"""`make bench`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.poll import processes, report, scenarios, tools
from bench.poll.processes import Failed
from bench.poll.renewing import renewed
from bench.poll.scenarios import QUICK, Plan
from bench.poll.targets import judged

HERE = Path(__file__).parent
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"


@dataclasses.dataclass(frozen=True)
class Scenario:
    title: str
    run: Callable[[Plan, Path], Any]
    show: Callable[[Any], str]


SCENARIOS: Mapping[str, Scenario] = {
    "shapes": Scenario("Polls at full speed", scenarios.shapes, report.shapes),
    "crowd": Scenario("Many connections, a poll a second on each", scenarios.crowds, report.crowds),
    "slow": Scenario("Good pollers beside slow connections", scenarios.slow, report.slow),
    "sweep": Scenario("Keep-alive polls over the size of the fleet", scenarios.sweep, report.sweep),
    "changes": Scenario("Polls while documents change", scenarios.changing, report.changing),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.poll", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes, to see that it works")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario, which is not written down")
    parser.add_argument("--renew", action="store_true", help="with --only: write it down")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no server behind
    try:
        keep = not options.quick and (options.renew or not options.only)
        _measure(QUICK if options.quick else Plan(), options.only, keep=keep)
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _measure(plan: Plan, only: str | None, *, keep: bool) -> None:
    plan, notes = _fitted(plan, processes.prepare())
    found: dict[str, Any] = {}
    shown = [_heading(notes)]
    _say(shown[0])
    with tempfile.TemporaryDirectory(prefix="bench-poll-") as scratch:
        tools.build(Path(scratch))
        for name, scenario in SCENARIOS.items():
            if only in (None, name):
                found[name] = scenario.run(plan, Path(scratch))
                shown.append(f"## {scenario.title}\n\n{scenario.show(found[name])}\n")
                _say(shown[-1])
    if judgement := judged(found):
        shown.insert(1, f"## Targets\n\n{judgement}\n")
        _say(shown[1])
    if keep and only is None:
        RESULTS.write_text("\n".join([*shown, NOTES.read_text()]))
    elif keep:
        before = RESULTS.read_text()
        title, rows = SCENARIOS[str(only)].title, judged(found).splitlines()[2:]
        RESULTS.write_text(renewed(before, title, shown[-1], rows, NOTES.read_text(), tools.date()))


def _fitted(plan: Plan, files: int) -> tuple[Plan, list[str]]:
    """As many connections as this system allows files, and a word if those are fewer."""
    most = files - plan.beside - 512
    if most >= plan.crowd:
        return plan, []
    note = f"Only {files:,} files may be open here, so {most:,} connections instead of"
    return dataclasses.replace(plan, crowd=most), [f"{note} {plan.crowd:,}."]


def _heading(notes: list[str]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in tools.versions().items())
    lines = [
        *("# What a poll costs", ""),
        f"Written by `make bench` on {tools.date()}.",
        *("", f"- machine: {tools.machine()}", f"- versions: {versions}"),
        f"- servers on core {processes.SERVER_CORE}, load on core {processes.LOAD_CORE},"
        " loopback only",
        "- full speed and the size of the fleet: rounds interleaved, medians; the rest: measured"
        " once, one server after the other",
        *(f"- {note}" for note in notes),
    ]
    return "\n".join(lines) + "\n"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""`make bench BENCH=hostile`: measures, prints, and after a full run writes RESULTS.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.hostile import report
from bench.hostile.attacks import ATTACKS, SHAPED, VICTIMS, Beside, measured
from bench.hostile.servers import SERVERS
from bench.poll import processes, tools
from bench.poll.processes import Failed
from bench.poll.targets import shown

HERE = Path(__file__).parent
RESULTS, NOTES = HERE / "RESULTS.md", HERE / "NOTES.md"
MACHINES, SECONDS = 40, 3.0  # that attack, and for how long
QUICK_MACHINES, QUICK_SECONDS = 10, 0.5


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="to see that it works")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[*ATTACKS, *SHAPED],
        metavar="NAME",
        help="these attacks, not written down",
    )
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no server behind
    try:
        processes.prepare()
        with tempfile.TemporaryDirectory(prefix="bench-hostile-") as scratch:
            tools.build(Path(scratch))
            _measure(given.only, given.quick, Path(scratch))
    except Failed as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit("bench: stopped")


def _measure(only: Sequence[str] | None, quick: bool, scratch: Path) -> None:
    machines, seconds = (QUICK_MACHINES, QUICK_SECONDS) if quick else (MACHINES, SECONDS)
    heading = _heading(machines, seconds)
    found: list[Beside] = []
    for attack in ("", *(only or (*ATTACKS, *SHAPED))):
        for server in SERVERS:
            found.append(measured(server, attack, machines if attack else 0, seconds, scratch))
            sys.stderr.write(f"{report.results(found[-1:]).splitlines()[-1]}\n")
    judged = f"## Targets\n\n{shown(report.targets(found))}\n"
    text = f"## Polls beside attacks\n\n{report.attacks()}\n\n{report.results(found)}\n"
    sys.stdout.write(f"{heading}\n{judged}\n{text}")
    if not only and not quick:
        RESULTS.write_text("\n".join([heading, judged, text, NOTES.read_text()]))


def _heading(machines: int, seconds: float) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in tools.versions().items())
    return f"""# Polls beside attacks

Written by `make bench BENCH=hostile` on {tools.date()}.

- machine: {tools.machine()}
- versions: {versions}
- {VICTIMS} machines poll once a second while {machines} others attack, for {seconds:g} s each
- servers on core {processes.SERVER_CORE}, load on core {processes.LOAD_CORE}, loopback only
- load average before the first measurement: {os.getloadavg()[0]:.1f}
"""


if __name__ == "__main__":
    main()

"""Runs one client as a program: `program.py NAME SECONDS [DIRECTORY]`, with the seconds between two
polls. Its log goes to the file in this directory that is named after its machine."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

sys.path[0] = str(Path(__file__).parents[2])  # where `helpers` is


def main(name: str, every: str, directory: str = "") -> None:
    from helpers.twins import clients

    if name in (clients.CLIENT, clients.LONG_POLL):
        _scale_pauses(float(every))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _open_log(directory) as output:

        def log(line: str) -> None:
            output.write(f"{line}\n")
            output.flush()

        clients.make(name, os.environ["FOREWARN_METADATA"], log, float(every)).run(stop)


def _scale_pauses(every: float) -> None:
    """Let the library pause for as many intervals after an error as in production, where an
    interval is a second."""
    from forewarn.client import pace

    pace.INTERVAL, pace.BACK_OFF_MOST = every, every * pace.BACK_OFF_MOST


def _open_log(directory: str) -> TextIO:
    if directory:
        return Path(directory, os.environ["FOREWARN_MACHINE"]).open("a")
    return os.fdopen(os.dup(sys.stdout.fileno()), "w")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Runs one client as a program: `program.py NAME SECONDS`, with the seconds between two polls."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])  # where `helpers` is


def main(name: str, every: str) -> None:
    from helpers.twins import clients

    if name in (clients.CLIENT, clients.LONG_POLL):
        _scale_pauses(float(every))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    clients.make(name, os.environ["FOREWARN_METADATA"], _print, float(every)).run(stop)


def _scale_pauses(every: float) -> None:
    """Let the library pause for as many intervals after an error as in production, where an
    interval is a second."""
    from forewarn.client import pace

    pace.INTERVAL, pace.BACK_OFF_MOST = every, every * pace.BACK_OFF_MOST


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

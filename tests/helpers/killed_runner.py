"""A runner that is killed with SIGKILL at its Nth point: `python -I killed_runner.py N DIRECTORY`.

A point is every call that opens, renames or syncs a file and both sides of starting the command,
also where the forked child is the one that makes the call: the runner dies, the child goes on. Once
the command is started and noted, the file `started` appears next to the other files of the run.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forewarn.agent.running.runners import RUNNER

RUNNER_PID = os.getpid()
reached = mmap.mmap(-1, 1)  # shared with the forked child


def point() -> None:
    reached[0] += 1
    if reached[0] == int(sys.argv[1]):
        os.kill(RUNNER_PID, signal.SIGKILL)


def before(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **more: Any) -> Any:
        point()
        return function(*args, **more)

    return wrapped


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **more: Any) -> None:
        point()
        super().__init__(*args, **more)
        point()
        Path(sys.argv[2], "started").touch()


def main() -> None:
    spec = importlib.util.spec_from_file_location("runner", RUNNER)
    assert spec
    assert spec.loader
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    for name in ("open", "replace", "fsync"):
        setattr(os, name, before(getattr(os, name)))
    subprocess.Popen = Popen  # type: ignore[misc]
    runner.main(sys.argv[2])


if __name__ == "__main__":
    main()

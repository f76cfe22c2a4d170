"""A small suite of tests, run by the tools that run ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from helpers.paths import ROOT
from helpers.waiting import LIMIT

TOOLS = (
    *("run-tests", "stress-tests"),
    *("pytest_runs.py", "pytest_outcomes.py", "pytest_processes.py"),
)
PYTEST = Path(sys.executable).parent / "pytest"
PRELUDE = """
import os, pathlib, signal, threading, time
import pytest

@pytest.fixture(autouse=True)
def runs(request):
    with open("runs", "a") as runs:
        print(request.node.nodeid, file=runs)
"""


def heed_hangup() -> None:
    """Also if these tests are run by nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class SmallSuite:
    """A folder with tests, and a copy of the runner: what runs these tests locks its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "suite"
        self.temporary = folder / "temporary"
        self.tools = folder / "tools"
        for path in (self.folder, self.temporary, self.tools):
            path.mkdir()
        for name in TOOLS:
            shutil.copy(ROOT / "tools" / name, self.tools)
        (self.folder / "pytest.ini").write_text(
            "[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n"
        )
        self.output = folder / "output"

    def add(self, name: str, source: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PRELUDE + source)

    def start(
        self, *arguments: str, tool: str = "run-tests", **environment: str
    ) -> subprocess.Popen[bytes]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
        }
        with self.output.open("wb") as output:
            return subprocess.Popen(
                [sys.executable, self.tools / tool, PYTEST, *arguments],
                cwd=self.folder,
                env={
                    **inherited,
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                    "TEST_PROCESSES": "2",
                    "TMPDIR": str(self.temporary),
                    **environment,
                },
                stdout=output,
                stderr=output,
                preexec_fn=heed_hangup,
            )

    def run(
        self, *arguments: str, tool: str = "run-tests", **environment: str
    ) -> tuple[int, list[str]]:
        """The exit status of the tool, and the lines that it has printed."""
        status = self.start(*arguments, tool=tool, **environment).wait(LIMIT)
        assert self.left() == []
        return status, self.lines()

    def lines(self) -> list[str]:
        return self.output.read_text().splitlines()

    def runs(self) -> list[str]:
        """The tests that were run, one after another."""
        return (self.folder / "runs").read_text().splitlines()

    def left(self) -> list[str]:
        """What the tool has not removed; what pytest keeps is not its own."""
        return [path.name for path in self.temporary.glob("*.*")]

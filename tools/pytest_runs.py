"""Runs of pytest by tools/run-tests and tools/stress-tests: one is started, ended with the program
that has started it, and read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

TOOLS = Path(__file__).resolve().parent
PLUGINS = ("-p", "pytest_outcomes", "-p", "pytest_processes")
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
TIDY_UP = 30.0  # s for pytest to end what tests have started; more than its processes have
TESTS_FAILED = 1  # pytest's exit status if there is nothing else to complain of

# Not for what the tests start: a test that runs make is not part of the make that runs the tests,
# and what is compiled once is not compiled again by each of a thousand processes.
UNSET = (
    *("PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"),
    *("TEST_PROCESSES", "TEST_BESIDE", "PYTEST_PROCESS"),
    *("FILES", "TIMES", "MINUTES", "SEED", "LOAD"),
)


class Runner:
    """Starts one pytest at a time, and ends it when this program is told to end."""

    def __init__(self) -> None:
        self._starting = False
        self._process: subprocess.Popen[bytes] | None = None
        self.signal = 0
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._end)

    def run(self, argv: Sequence[str], directory: Path, environment: dict[str, str]) -> Results:
        """Run pytest to its end, which writes what it has found into that directory."""
        outcomes = directory / "outcomes"
        path = [str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {name: value for name, value in os.environ.items() if name not in UNSET}
        env |= {"PYTHONPATH": os.pathsep.join(path)} | environment
        pytest, *arguments = argv
        # With "=": pytest takes existing paths for tests, before it has loaded the plugin.
        plugins = (*PLUGINS, f"--outcomes={outcomes}")
        self._starting = True
        self._process = subprocess.Popen([pytest, *plugins, *arguments], env=env)
        self._starting = False
        if self.signal:
            self._process.terminate()
        status = self._process.wait()
        self._process = None
        if self.signal:
            raise SystemExit(128 + self.signal)
        return Results(status, outcomes)

    def stop(self) -> None:
        """Let the pytest that is running end, so that `run` returns."""
        if self._process:
            self._process.terminate()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.signal = number
        if self._process is None and not self._starting:
            raise SystemExit(128 + number)
        if (process := self._process) is None:
            return
        patience = TIDY_UP if number == signal.SIGINT else 0.0
        for seconds, end in ((patience, process.terminate), (patience + TIDY_UP, process.kill)):
            timer = threading.Timer(seconds, end)
            timer.daemon = True
            timer.start()


class Results:
    """What became of the tests of one run."""

    def __init__(self, status: int, outcomes: Path) -> None:
        self.status = status if status >= 0 else 128 - status  # as a shell says it
        self.complete = True
        self.failures: dict[str, str] = {}  # the text of its first failure, by test
        self.passed: set[str] = set()
        self.running: set[str] = set()
        self.seconds: dict[str, float] = defaultdict(float)  # by file
        self.tests: dict[str, set[str]] = defaultdict(set)  # by file
        if outcomes.exists():
            with outcomes.open(encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):
                        self._add(**json.loads(line))
        self.passed -= self.failures.keys()

    def _add(self, test: str, when: str, outcome: str, seconds: float, text: str = "") -> None:
        if when in ("collect", "session"):
            self.complete = False
            return
        file = test.partition("::")[0]
        self.seconds[file] += seconds
        self.tests[file].add(test)
        if outcome == "failed":
            self.failures.setdefault(test, text)
        elif outcome == "passed" and when == "call":
            self.passed.add(test)
        if outcome == "started":
            self.running.add(test)
        elif when != "setup" or outcome == "failed":
            self.running.discard(test)


def say(*lines: str) -> None:
    """Print lines at once, so that they keep their place between those of pytest."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()

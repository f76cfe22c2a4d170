"""A pytest plugin for tools/run-tests and tools/stress-tests: what became of each test, as JSON
lines in a file, and which tests are run in which order.

The file is written by the process that was started, also if it has others run the tests. Programs
that tests start see nothing of it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time  # noqa: TID251
from pathlib import Path
from typing import Any

import pytest

TOOLS = str(Path(__file__).resolve().parent)
SWITCH_INTERVALS = (0.005, 0.000_1, 0.000_01, 0.000_001)  # s; the first is Python's own


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("outcomes")
    group.addoption("--outcomes", metavar="FILE", help="Write an object per report to this file.")
    group.addoption("--only", metavar="FILE", help="Run the tests of this JSON list and no others.")
    group.addoption(
        "--shuffle",
        metavar="SEED",
        help="Shuffle files, the tests in them, and how often threads take turns.",
    )
    group.addoption(
        "--last-test",
        metavar="TIME",
        type=float,
        help="Skip the tests that would begin after this time.",
    )


def pytest_configure(config: pytest.Config) -> None:
    if seed := config.getoption("--shuffle"):
        config.pluginmanager.register(Shuffle(seed))
    if last := config.getoption("--last-test"):
        config.pluginmanager.register(LastTest(last))
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if TOOLS in python_path:  # put there by the runner, for this module to be found
        python_path.remove(TOOLS)
        os.environ["PYTHONPATH"] = os.pathsep.join(python_path)
        if not python_path:
            del os.environ["PYTHONPATH"]
    if only := config.getoption("--only"):
        tests = set(json.loads(Path(only).read_text(encoding="utf-8")))
        config.pluginmanager.register(Only(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        # As arguments are: relative to where pytest was started.
        root = os.path.relpath(config.rootpath, config.invocation_params.dir)
        config.args = [os.path.normpath(Path(root, file)) for file in files]
    if outcomes := config.getoption("--outcomes"):
        config.pluginmanager.register(Outcomes(Path(outcomes)))


class Outcomes:
    """Writes a line per report, as soon as it is there."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8", buffering=1)

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(test=nodeid, when="start", outcome="started", seconds=0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write_report(report, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write_report(report, 0.0)

    def _write_report(self, report: Any, seconds: float) -> None:
        text = ""
        if report.failed:
            sections = [f"----- {name} -----\n{content}" for name, content in report.sections]
            text = "\n".join((report.longreprtext, *sections))
        self._write(
            test=report.nodeid,
            when=getattr(report, "when", "collect"),
            outcome=report.outcome,
            seconds=seconds,
            text=text,
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.shouldfail or session.shouldstop:  # --exitfirst: not everything was run
            self._write(test="", when="session", outcome="stopped", seconds=0)

    def pytest_unconfigure(self) -> None:
        self._file.close()


class Only:
    """Deselects all tests but these."""

    def __init__(self, tests: set[str]) -> None:
        self._tests = tests

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        others = [item for item in items if item.nodeid not in self._tests]
        items[:] = [item for item in items if item.nodeid in self._tests]
        config.hook.pytest_deselected(items=others)


class Shuffle:
    """Shuffles files and the tests in them; threads take turns more or less often in each test."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Of names, not of places: a test has the same place whatever else was collected.
        files = {item.path for item in items}
        places = {file: random.Random(f"{self._seed} {file.name}").random() for file in files}
        items.sort(
            key=lambda item: (
                places[item.path],
                str(item.path),
                random.Random(f"{self._seed} {item.nodeid}").random(),
            )
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        interval = random.Random(f"{self._seed} {item.nodeid} switch").choice(SWITCH_INTERVALS)
        sys.setswitchinterval(interval)


class LastTest:
    """Skips the tests that would begin after a time."""

    def __init__(self, last: float) -> None:
        self._last = last

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.time() > self._last:
            pytest.skip("the time is over")

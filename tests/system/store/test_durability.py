"""A disk that refuses to write or to sync, at every call of a life of the store: what callers were
told agrees with what the next service finds, be the process killed or the power cut."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from helpers import failing_disk
from helpers.paths import TESTS
from helpers.process import Running


class Reports(NamedTuple):
    whole: dict[str, Any]  # a life without a failure
    lives: list[dict[str, Any]]
    restores: list[dict[str, Any]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    home = tmp_path_factory.mktemp("lives")
    argv = [sys.executable, "-m", "helpers.failing_disk", str(home)]
    process = subprocess.Popen(
        argv,
        env=failing_disk.environment() | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        running = Running(process, argv)
        lives = list(running.lines())  # hundreds: each has as much time as anything else
        assert running.wait() == 0, running.stderr
    whole, *failures = [json.loads(line) for line in lives]
    (at,) = [n for n, report in enumerate(failures) if "restoring" in report]
    assert len(failures) - at - 1 == failures[at]["restoring"]
    return Reports(whole, failures[:at], failures[at + 1 :])


def test_acknowledged_commits_are_found_by_the_next_service(reports: Reports) -> None:
    whole = reports.whole
    assert whole["syncs"] > 15
    assert whole["writes"] > 50
    assert len(reports.lives) == 2 * whole["syncs"] + len(
        range(0, whole["writes"], failing_disk.WRITES_STEP)
    )
    assert [report for report in reports.lives if report["wrong"]] == []


def test_a_failed_sync_is_not_reported_as_a_failed_commit(reports: Reports) -> None:
    syncs = [report for report in reports.lives if report["failure"].startswith("sync")]
    assert [report for report in syncs if report["failed"]] == []
    assert any(report["unknown"] for report in syncs)


def test_a_failed_write_is_reported_and_the_next_one_succeeds(reports: Reports) -> None:
    writes = [report for report in reports.lives if report["failure"].startswith("write")]
    assert [report for report in writes if report["unknown"]] == []
    assert any(report["failed"] and "e" in report["done"] for report in writes)


def test_a_restore_that_failed_has_changed_nothing(reports: Reports) -> None:
    assert [report for report in reports.restores if report["wrong"]] == []
    assert any(report["failed"] for report in reports.restores)
    assert any(report["unknown"] for report in reports.restores)

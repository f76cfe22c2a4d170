"""A disk that refuses to write or to sync, at every call of a life of the store: what callers were
told agrees with what the next service finds, be the process killed or the power cut."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import failing_disk
import pytest


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    home = tmp_path_factory.mktemp("lives")
    done = subprocess.run(
        [sys.executable, str(Path(failing_disk.__file__)), str(home)],
        env=failing_disk.environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_callers_are_told_is_what_the_next_service_finds(
    reports: list[dict[str, Any]],
) -> None:
    whole, *failures = reports
    assert whole["syncs"] > 15
    assert whole["writes"] > 50
    assert len(failures) == 2 * whole["syncs"] + whole["writes"]
    assert [report for report in failures if report["wrong"]] == []


def test_a_sync_that_fails_tells_nobody_that_it_did_not_happen(
    reports: list[dict[str, Any]],
) -> None:
    syncs = [report for report in reports[1:] if report["failure"].startswith("sync")]
    assert [report for report in syncs if report["failed"]] == []
    assert any(report["unknown"] for report in syncs)


def test_a_write_that_fails_is_told_as_such_and_the_next_one_succeeds(
    reports: list[dict[str, Any]],
) -> None:
    writes = [report for report in reports[1:] if report["failure"].startswith("write")]
    assert [report for report in writes if report["unknown"]] == []
    assert any(report["failed"] and "e" in report["done"] for report in writes)

"""Tests that are run in several processes (helpers/run_files.py): whatever happens in one of them
is reported, and nothing is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from helpers.paths import TESTS

DIES = """
import os, signal

def test_before(): pass
def test_fails(): assert "this" == "that"
def test_dies(): os.kill(os.getpid(), signal.SIGKILL)
def test_after(tmp_path): (tmp_path / "file").touch()
"""
TEARS_DOWN = """
import pytest

@pytest.fixture(scope="session")
def shared():
    yield
    raise ValueError("cannot be torn down")

def test_last(shared): print("captured")
"""
ALONE = """
import os

def test_alone(tmp_path): assert f"worker-{os.environ['TEST_WORKER']}" in tmp_path.parts
def test_skipped():
    import pytest
    pytest.skip("not here")
"""


def pytest_in(directory: Path, *options: str) -> tuple[int, str]:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "helpers.run_files", "-p", "no:cacheprovider"),
            *("--processes", "2", f"--basetemp={directory / 'temporary'}", "-rA", *options),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_every_test_is_reported_whatever_becomes_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in (("dies", DIES), ("tears_down", TEARS_DOWN), ("alone", ALONE)):
        (tmp_path / f"test_{name}.py").write_text(text)
    code, output = pytest_in(tmp_path)
    assert code == 1
    assert "1 failed, 4 passed, 1 skipped, 2 errors" in output
    assert "FAILED test_dies.py::test_fails - AssertionError" in output
    assert "the process that runs this test: exit code -9" in output
    assert "ValueError: cannot be torn down" in output
    for name in ("dies.py::test_before", "dies.py::test_after", "alone.py::test_alone"):
        assert f"PASSED test_{name}" in output


def test_all_is_well_if_all_passes_and_the_first_failure_is_the_last_if_wanted(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_alone.py").write_text(ALONE)
    code, output = pytest_in(tmp_path)
    assert (code, "1 passed, 1 skipped" in output) == (0, True)
    (tmp_path / "test_alone.py").write_text("def test_a(): assert 0\ndef test_b(): pass\n")
    code, output = pytest_in(tmp_path, "--exitfirst")
    assert (code, "1 failed in" in output) == (1, True)

"""The wheel and the source distribution: what `make dist` has just built, or else built here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.empty_environment import PROJECT
from helpers.paths import ROOT
from helpers.waiting import BUILD_LIMIT


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that contains both."""
    import fcntl  # which Windows does not have, and tests that run there do not need

    if built := os.environ.get("FOREWARN_DIST"):
        return ROOT / built
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_PROCESS" in os.environ:
        run = run.parent  # of all processes of this run: it is built by the first
    out, unfinished = run / "dist", run / "unfinished-dist"
    with (run / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            ended = subprocess.run(
                [ROOT / "tools/build-dist", PROJECT, unfinished],
                capture_output=True,
                text=True,
                timeout=BUILD_LIMIT,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            unfinished.rename(out)
    return out


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (wheel,) = dist.glob("forewarn-*.whl")
    return wheel

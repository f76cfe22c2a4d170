"""The wheel and the source distribution: what `make dist` has just built, or else built here."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.empty_environment import FETCHED, PATIENCE, PROJECT, EmptyEnvironment, make_index
from helpers.paths import ROOT


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that contains both."""
    if built := os.environ.get("FOREWARN_DIST"):
        return ROOT / built
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent  # of all processes of this run: it is built by the first
    out, unfinished = run / "dist", run / "unfinished-dist"
    with (run / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            ended = subprocess.run(
                [ROOT / "tools/build-dist", PROJECT, unfinished],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert ended.returncode == 0, ended.stdout + ended.stderr
            unfinished.rename(out)
    return out


@pytest.fixture(scope="session")
def make_environment(
    dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], EmptyEnvironment]:
    """Make an environment by its name. Its pip finds forewarn as if it were published, except in
    one with the name `unpublished`."""
    if not FETCHED.is_dir():
        pytest.fail(f"{FETCHED} is missing; it is made by 'make test'")
    fetched = sorted(FETCHED.glob("*.whl"))
    index = make_index(tmp_path_factory.mktemp("index"), [*fetched, *dist.glob("*.whl")])
    without = make_index(tmp_path_factory.mktemp("index"), fetched)

    def make(name: str) -> EmptyEnvironment:
        directory = tmp_path_factory.mktemp(name) / "venv"
        return EmptyEnvironment(directory, without if name == "unpublished" else index)

    return make

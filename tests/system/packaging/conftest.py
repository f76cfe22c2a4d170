"""The wheel and the source distribution: what `make dist` has just built, or else built here."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.empty_environment import PATIENCE, PROJECT, EmptyEnvironment
from helpers.paths import ROOT


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that contains both."""
    if built := os.environ.get("FOREWARN_DIST"):
        return ROOT / built
    out = tmp_path_factory.mktemp("dist")
    ended = subprocess.run(
        [ROOT / "tools/build-dist", PROJECT, out], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


@pytest.fixture(scope="session")
def make_environment(
    dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], EmptyEnvironment]:
    return lambda name: EmptyEnvironment(tmp_path_factory.mktemp(name) / "venv", dist)

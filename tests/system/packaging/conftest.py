"""Empty environments, in which forewarn can be installed as if it were published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.empty_environment import EmptyEnvironment


@pytest.fixture(scope="session")
def make_environment(
    dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], EmptyEnvironment]:
    """Make an environment by its name."""
    return lambda name: EmptyEnvironment(tmp_path_factory.mktemp(name) / "venv", dist)

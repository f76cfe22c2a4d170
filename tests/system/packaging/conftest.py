"""Empty environments, and an index in which pip finds what they need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.empty_environment import FETCHED, EmptyEnvironment, make_index


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

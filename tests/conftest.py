"""For all tests: nothing is logged to the terminal, and hypothesis keeps its own time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import structlog
from hypothesis import HealthCheck, settings


def _drop(_logger: object, _method: str, _event: Any) -> NoReturn:
    raise structlog.DropEvent


structlog.configure(processors=[_drop])


@pytest.fixture(autouse=True)
def _no_log_is_left_to_the_next_test() -> Iterator[None]:
    """A command that is run in this process sets up a log of its own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("forewarn"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "forewarn")

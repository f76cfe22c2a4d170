"""For all tests: nothing is logged to the terminal, and hypothesis keeps its own time."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import structlog
from hypothesis import HealthCheck, settings


def _drop(_logger: object, _method: str, _event: Any) -> NoReturn:
    raise structlog.DropEvent


structlog.configure(processors=[_drop])
settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("forewarn"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "forewarn")

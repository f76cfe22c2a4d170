"""For all tests: nothing is logged to the terminal, commands are made once, what takes longest goes
first, and hypothesis keeps its own time."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import structlog
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings


def _drop(_logger: object, _method: str, _event: Any) -> NoReturn:
    raise structlog.DropEvent


structlog.configure(processors=[_drop])

# To type a command takes a tenth of the time that it takes to read them all off the source again.
typer.testing._get_command = functools.cache(  # type: ignore[attr-defined]
    typer.main.get_command
)


@pytest.fixture(autouse=True)
def _no_log_is_left_to_the_next_test() -> Iterator[None]:
    """A command that is run in this process sets up a log of its own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


# Begun first, so that nobody waits for them in the end: the longest, and what builds packages.
LONGEST = (
    "acceptance/test_deb.py",
    "acceptance/test_container.py",
    "acceptance/test_schemathesis.py",
    "killing/test_killing.py",
    "acceptance/test_agent_killed.py",
    "acceptance/test_clients.py",
    "acceptance/test_workers.py",
    "acceptance/test_supervised.py",
    "acceptance/test_tutorial.py",
    "killing/test_killing_workers.py",
    "acceptance/test_hand_over.py",
    "simulation/test_simulation.py",
    "differential/test_differential_cases.py",
    "acceptance/test_front.py",
    "acceptance/test_howto_languages.py",
    "acceptance/test_hooks_recipes_kubernetes.py",
    "acceptance/test_store_trouble.py",
    "acceptance/test_scenario_commands.py",
    "acceptance/test_examples_web.py",
    "acceptance/test_guest_network.py",
    "acceptance/test_examples_replica.py",
    "acceptance/test_examples_batch.py",
    "judge/test_judge_crowd.py",
    "simulation/test_broken_services.py",
    "acceptance/test_feed_followed.py",
    "acceptance/test_agent_handling.py",
    "acceptance/test_agent_booted.py",
    "acceptance/test_hooks_systemd.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        here = "/".join(item.path.parts[-2:])
        return LONGEST.index(here) if here in LONGEST else len(LONGEST)

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Thousands of tests are here to stay: not to be looked through whenever one leaves garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _an_interrupt_interrupts() -> None:
    """The processes of a run ignore it, as would whatever they start; and a supervisor that was
    tried in this one has told it not to."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("forewarn"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "forewarn")

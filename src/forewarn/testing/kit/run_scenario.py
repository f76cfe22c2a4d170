"""Runs a scenario on a service of its own. `scenarios.play` uses a given service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from forewarn.service.engine.catch_up import POLL_PATIENCE
from forewarn.testing.durations import Duration, in_seconds
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios import shipped_list
from forewarn.testing.scenarios.model import Scenario
from forewarn.testing.scenarios.result import Result
from forewarn.testing.scenarios.runner import FIRST_POLL_WITHIN, Program, play


def run_scenario(
    scenario: str | Path | Scenario,
    *,
    client: Callable[[], object] | None = None,
    speed: float | None = None,
    record: Path | None = None,
    first_poll_timeout: Duration = FIRST_POLL_WITHIN,
    reaction_time: Duration = 0,
    timeout: Duration = POLL_PATIENCE,
    program: Program | None = None,
    on_ready: Callable[[Service], None] = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Result:
    """Start a service with the scenario's fleet, and play the scenario on it.

    With a `speed` it runs in real time, with durations divided by it; else on a virtual clock.
    `on_ready` is called when the service runs and nothing has happened yet; `on_step` with each
    step of the timeline that is carried out. The rest is as for `scenarios.play`.
    """
    loaded = scenario if isinstance(scenario, Scenario) else shipped_list.find(scenario)
    service = Service(
        loaded.fleet,
        sockets=True,
        record=record,
        real_time=speed is not None,
        speed=speed or 1.0,
        default_machine=loaded.under_test[0],
    )
    with service:
        on_ready(service)
        return play(
            service,
            loaded,
            client=client,
            first_poll_timeout=in_seconds(first_poll_timeout),
            reaction_time=in_seconds(reaction_time),
            timeout=in_seconds(timeout),
            program=program,
            on_step=on_step,
        )

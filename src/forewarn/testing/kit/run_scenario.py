"""Runs a scenario on a service of its own. `scenarios.play` uses a given service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME
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
    stop_before: Duration | Sequence[Duration] = (),
    record: str | Path | None = None,
    first_poll_timeout: Duration = FIRST_POLL_WITHIN,
    reaction_time: Duration = REACTION_TIME,
    timeout: Duration = POLL_PATIENCE,
    program: Program | None = None,
    on_ready: Callable[[Service], None] | None = None,
    on_step: Callable[[str], None] | None = None,
    time_limit: Duration | None = None,
) -> Result:
    """Start a service with the scenario's fleet, and play the scenario on it.

    Args:
        scenario: The name of a scenario that comes with forewarn, a file, or a value.
        client: Called at every stop of the clock, to send requests as the machine under test.
            Without it, the player waits for clients that poll from elsewhere.
        speed: Run in real time, with all durations divided by this number; by default the clock is
            virtual.
        stop_before: When the client acts on its events, as the time before NotBefore or as several:
            a virtual clock also stops there, and gives it time to react.
        record: A file to which a trace is written.
        first_poll_timeout: Real time in which the machines under test have to poll; by default 30
            seconds.
        reaction_time: Real time that a machine gets for each of its own events that it has
            seen; by default 1 second.
        timeout: Real time that each change waits for clients that have been polling; by default 5
            seconds.
        program: The program under test, if the player has to start and stop it.
        on_ready: Called when the service runs and nothing has happened yet.
        on_step: Called with a description of each step that is carried out.
        time_limit: Real time after which the scenario is stopped, and has failed; by default, there
            is no limit.

    Raises:
        ScenarioError: The scenario does not exist or has mistakes.
    """
    loaded = scenario if isinstance(scenario, Scenario) else shipped_list.find(scenario)
    service = Service(
        loaded.fleet,
        sockets=True,
        record=record,
        real_time=speed is not None,
        speed=speed or 1.0,
        stop_before=stop_before,
        default_machine=loaded.under_test[0],
    )
    with service:
        if on_ready is not None:
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
            time_limit=None if time_limit is None else in_seconds(time_limit),
        )

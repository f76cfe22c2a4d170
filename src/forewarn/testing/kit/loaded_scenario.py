"""`LoadedScenario`: a scenario whose fleet a service has, and whose time has not begun to run.

In between, a test starts its client at the address of the machine under test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME
from forewarn.testing.durations import Duration, in_seconds
from forewarn.testing.kit.machines import FIRST_POLL_WITHIN, Machine
from forewarn.testing.session import refuse_in_a_loop

if TYPE_CHECKING:
    from forewarn.testing.scenarios import Result, Scenario
    from forewarn.testing.scenarios.runner import Stage


class LoadedScenario:
    """A scenario on a service, ready to be played; made by `Service.load_scenario`.

    The service has the scenario's fleet, so that clients can be started and poll. Nothing happens
    until `play` is called.
    """

    scenario: Scenario
    """The scenario as a value: its name, fleet, steps and expectations."""

    machines: tuple[Machine, ...]
    """The machines under test, which the scenario names in `as`."""

    def __init__(self, stage: Any, machines: tuple[Machine, ...]) -> None:
        self._stage: Stage = stage  # Any above: what it is, is not for users
        self.scenario = stage.scenario
        self.machines = machines

    @property
    def machine(self) -> Machine:
        """The machine under test, or the first one of several."""
        return self.machines[0]

    def play(
        self,
        *,
        client: Callable[[], object] | None = None,
        first_poll_timeout: Duration = FIRST_POLL_WITHIN,
        reaction_time: Duration = REACTION_TIME,
        timeout: Duration = POLL_PATIENCE,
    ) -> Result:
        """Play the scenario, once.

        Args:
            client: Called at every stop of the clock, to send requests as the machine under test.
                Without it, the player waits for clients that poll from elsewhere.
            first_poll_timeout: Real time in which the machines under test have to poll; by default
                30 seconds. Polls since the scenario was loaded count.
            reaction_time: Real time that a machine gets for each of its own events that it has
                seen; by default 1 second.
            timeout: Real time that each change waits for clients that have been polling; by
                default 5 seconds.

        Raises:
            RefusedError: It has been played already.
        """
        if client is None:
            refuse_in_a_loop("play()")
        return self._stage.play(
            client=client,
            first_poll_timeout=in_seconds(first_poll_timeout),
            reaction_time=in_seconds(reaction_time),
            timeout=in_seconds(timeout),
        )

    def __repr__(self) -> str:
        return f"<LoadedScenario {self.scenario.name} as {', '.join(self.scenario.under_test)}>"

"""Plays scenarios to clients that run as programs of their own, and tells what was found.

A finding is the name of a rule, or an expectation of the scenario in the words of its result.
"""

from __future__ import annotations

from pathlib import Path

from forewarn.testing import run_scenario, scenarios
from forewarn.testing.scenarios import Result
from forewarn.testing.scenarios.engine.program import ProgramRunner
from forewarn.testing.scenarios.result import CommandExit
from helpers.twins import clients
from helpers.waiting import until

PATIENT = 30.0  # seconds for which a client that polls is waited for, however busy the computer is
GIVEN_UP = 0.5  # seconds after which a client that is meant to stop polling is not waited for
FIRST_POLL_WITHIN = 60.0  # seconds
NO_COMPLAINTS = "no complaints"


def play(
    name: str,
    client: str,
    log: Path,
    *,
    impact: bool = False,
    stops: bool = False,
    refused: bool = False,
    crashes: bool = False,
) -> Result:
    """Play a shipped scenario to a client on each machine under test; with `impact`, what happens
    to the machine happens to the client, which is asked before whether it is busy. One that
    `crashes` is given the time to do so, however soon the scenario is over."""
    scenario = scenarios.find(name)
    program = (CrashingProgram if crashes else ProgramRunner)(
        clients.command(client, log),
        scenario.under_test,
        impact=impact,
        busy_check=clients.busy_check(log) if impact else (),
        show=lambda *_: None,
    )
    return run_scenario(
        scenario,
        program=program,
        first_poll_timeout=1.0 if refused else FIRST_POLL_WITHIN,
        timeout=GIVEN_UP if stops else PATIENT,
    )


class CrashingProgram(ProgramRunner):
    """Commands of which one is about to crash when the scenario is over."""

    def end(self) -> tuple[CommandExit, ...]:
        until(lambda: any(self.exit_of(machine) for machine in self._running) or self._crashed)
        return super().end()


def findings(result: Result) -> set[str]:
    failed = {item.expected for item in result.expectations if not item.ok}
    rules = {complaint.rule for complaint in result.verdict.complaints}
    return failed - {NO_COMPLAINTS} | rules

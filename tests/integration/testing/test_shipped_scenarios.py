"""Every shipped scenario: a good client passes it, and a client with a mistake that no twin makes
does not. The other mistakes are tested with programs, in tests/system/twins."""

from __future__ import annotations

import pytest

from forewarn import judge
from forewarn.testing import run_scenario, scenarios
from forewarn.testing.scenarios import Result
from forewarn.verdict import clients as verdict_clients
from helpers import scenario_clients as clients
from helpers.scenario_clients import Clients, Good
from helpers.waiting import LIMIT


@pytest.fixture(autouse=True)
def _clients_may_poll_as_often_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """They poll two hundred times as often as they should, for a day to pass in seconds. Where the
    clock moves by seconds meanwhile, as in the middle of a migration, that is hammering."""
    monkeypatch.setattr(verdict_clients, "HAMMERING_SECONDS", float("inf"))


@pytest.fixture(autouse=True)
def _stalled_answers_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT", 0.5)


def played(name: str, kind: type[Good]) -> Result:
    scenario = scenarios.find(name)
    program = Clients(kind, scenario.under_test)
    return run_scenario(scenario, program=program, timeout=LIMIT)


@pytest.mark.parametrize("name", scenarios.names())
def test_a_good_client_passes_every_scenario(name: str) -> None:
    result = played(name, Good)
    result.check()
    assert all(step.at is not None for step in result.steps)
    assert result.verdict.ok
    judgement = judge.judge(result.lines)
    assert judgement.ok, judgement.render()


@pytest.mark.parametrize(
    ("name", "mistake", "fails"),
    [
        ("host-maintenance", clients.FirstMachineOnly, "update is approved by one of its own"),
        ("sudden-failure", clients.ApprovesEverything, "failure is never approved"),
        ("failed-host", clients.ApprovesEverything, "reboot is never approved"),
        ("bad-days", clients.OnlyOther, "update is approved by web_0"),
    ],
)
def test_a_client_with_another_usual_mistake_fails_the_scenario(
    name: str, mistake: type[Good], fails: str
) -> None:
    result = played(name, mistake)
    failed = [one.expected for one in result.expectations if not one.ok]
    assert any(expected.startswith(fails) for expected in failed), str(result)
    assert not result.ok

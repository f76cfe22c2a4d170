"""Every shipped scenario: a good client passes it, and the mistake that it is about does not."""

from __future__ import annotations

import pytest

from forewarn import judge
from forewarn.testing import run_scenario, scenarios
from forewarn.testing.scenarios import Result
from forewarn.verdict import clients as verdict_clients
from helpers import scenario_clients as clients
from helpers.scenario_clients import Clients, Good
from helpers.waiting import LIMIT

IMPATIENT = 0.5  # seconds until a client that asks no more is not waited for


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
    leaves = kind in (clients.Seldom, clients.Fragile)
    return run_scenario(scenario, program=program, timeout=IMPATIENT if leaves else LIMIT)


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
        ("live-migration", clients.ApprovesFreezes, "migration is never approved"),
        ("host-maintenance", clients.NeverApproves, "update is approved by one of its own"),
        ("host-maintenance", clients.FirstMachineOnly, "update is approved by one of its own"),
        ("user-reboot", clients.PlatformOnly, "restart is approved by web_0"),
        ("user-redeploy", clients.Meddles, "redeploy is approved by one of its own"),
        ("spot-eviction", clients.Seldom, "eviction is seen in time"),
        ("scale-in", clients.Outdated, "shrinking is seen in time"),
        ("degraded-hardware", clients.NeverApproves, "repair is approved by db-0, 1 d ahead"),
        ("sudden-failure", clients.ApprovesEverything, "failure is never approved"),
        ("failed-host", clients.ApprovesEverything, "reboot is never approved"),
        ("not-as-announced", clients.ExpectsItsEnd, "restart is approved by web_0"),
        ("one-fault-domain", clients.NeverApproves, "own is approved by web_1a2b3c4d"),
        ("withdrawn", clients.Insistent, "no complaints"),
        ("rolling-update", clients.Meddles, "update is approved by one of its own"),
        ("short-notice", clients.Seldom, "repair is seen in time"),
        ("storm", clients.FirstOnly, "storm of web_4 is approved by web_4"),
        ("storm", clients.ApprovesEverything, "storm of web_41 is never approved"),
        ("bad-days", clients.Fragile, "restart is seen in time"),
        ("bad-days", clients.OnlyLarger, "restart is approved by web_0"),
        ("bad-days", clients.OnlyOther, "update is approved by web_0"),
    ],
)
def test_a_client_with_the_usual_mistake_fails_the_scenario(
    name: str, mistake: type[Good], fails: str
) -> None:
    result = played(name, mistake)
    failed = [one.expected for one in result.expectations if not one.ok]
    assert any(expected.startswith(fails) for expected in failed), str(result)
    assert not result.ok


def test_every_shipped_scenario_is_tested_with_its_mistake() -> None:
    marks = test_a_client_with_the_usual_mistake_fails_the_scenario.pytestmark  # type: ignore[attr-defined]
    assert sorted({case[0] for case in marks[0].args[1]}) == scenarios.names()

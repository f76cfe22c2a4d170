"""Clients as programs under the shipped scenarios: the good ones pass all of them, and a mistake is
found in the scenarios that are about it, for the right reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import scenarios
from helpers.forked_programs import fork_programs
from helpers.netns import require
from helpers.twins import clients
from helpers.twins.play import findings, play
from helpers.twins.table import NOT_CRASHED, TWINS

PAIRS = [(mistake, name) for mistake, twin in TWINS.items() for name in twin.scenarios]


@pytest.fixture
def forked_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_programs(monkeypatch)


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(
    ("client", "name"), clients.paired(scenarios.names(), always=[clients.PLAIN])
)
def test_a_good_program_passes(client: str, name: str, tmp_path: Path) -> None:
    if client == clients.SHELL:
        require(shutil.which("curl"), "curl: apt-get install curl")
    result = play(name, client, tmp_path, impact=client == clients.PLAIN)
    result.check()
    assert findings(result) == set(), str(result.verdict)


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(("mistake", "name"), PAIRS)
def test_a_mistake_is_found_for_the_right_reason(mistake: str, name: str, tmp_path: Path) -> None:
    twin = TWINS[mistake]
    found = twin.scenarios[name]
    result = play(
        name,
        mistake,
        tmp_path,
        impact=found.impact,
        stops=twin.stops,
        refused=twin.refused,
        crashes=NOT_CRASHED in found.by,
    )
    problem = found.problem(findings(result))
    assert not problem, f"{problem}\n{result}\n{result.verdict}"
    assert not result.ok


def test_every_shipped_scenario_finds_a_mistake() -> None:
    assert {name for _, name in PAIRS} == set(scenarios.names())


def test_the_command_line_comes_to_the_same_result() -> None:
    """With programs that are really started."""
    words = ["scenario", "run", "user-reboot", "--"]
    good = CliRunner().invoke(app, [*words, *clients.command(clients.PLAIN)])
    assert good.exit_code == 0, good.output
    buggy = CliRunner().invoke(app, [*words, *clients.command("sends-plain-ids")])
    assert buggy.exit_code == 1, buggy.output
    assert "malformed-approval" in buggy.output

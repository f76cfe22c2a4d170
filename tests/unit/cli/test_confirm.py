"""Confirmation on a terminal, and the option --yes of commands that change something."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from forewarn.cli.app import load_command
from forewarn.cli.confirm import accepts_yes
from helpers.paths import ROOT
from helpers.waiting import LIMIT

OPENAPI = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())
CHANGING = sorted(
    {
        operation["x-command"]
        for path in OPENAPI["paths"].values()
        for method, operation in path.items()
        if method in {"post", "put", "patch", "delete"}
        and operation.get("x-role") != "viewer"
        and "x-command" in operation
    }
)


@pytest.mark.parametrize("line", [*CHANGING, "forewarn restore", "forewarn upgrade"])
def test_every_command_that_changes_something_accepts_yes(line: str) -> None:
    _, name, *words = shlex.split(line)
    command = load_command(name)
    if hasattr(command, "commands"):
        command = command.commands[words[0]]
    assert "--yes" in [option for parameter in command.params for option in parameter.opts]


def test_a_command_that_never_asks_does_the_same_with_yes() -> None:
    app = typer.Typer()

    @app.command()
    @accepts_yes
    def put(name: str, size: int = 1) -> None:
        """Put something somewhere."""
        typer.echo(f"{name} {size}")

    assert CliRunner().invoke(app, ["x", "--yes", "--size", "2"]).stdout == "x 2\n"
    assert CliRunner().invoke(app, ["x"]).stdout == "x 1\n"
    assert "Put something somewhere." in CliRunner().invoke(app, ["--help"]).stdout


CONFIRM = """
import typer
from forewarn.cli.confirm import confirm
typer.run(lambda: confirm("web_0 will be deleted"))
"""


@pytest.mark.parametrize(
    ("answered", "shown", "status"),
    [(True, True, 1), (True, False, 2), (False, True, 2), (False, False, 2)],
)
def test_a_command_asks_only_if_somebody_can_read_the_question_and_answer_it(
    answered: bool, shown: bool, status: int
) -> None:
    terminal, end = os.openpty()
    os.write(terminal, b"n\n")
    try:
        ended = subprocess.run(
            [sys.executable, "-c", CONFIRM],
            stdin=end if answered else subprocess.DEVNULL,
            stderr=end if shown else subprocess.PIPE,
            timeout=LIMIT,
            check=False,
        )
    finally:
        os.close(end)
        os.close(terminal)
    assert ended.returncode == status

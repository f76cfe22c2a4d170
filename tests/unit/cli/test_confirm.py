"""The option --yes, which a script can pass to every command that changes something."""

from __future__ import annotations

import json
import shlex

import pytest
import typer
from typer.testing import CliRunner

from forewarn.cli.app import load_command
from forewarn.cli.confirm import accepts_yes
from helpers.paths import ROOT

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

"""The command line as a whole: names of commands that do not exist."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import COMMANDS, RENAMED, app


@pytest.mark.parametrize(
    ("typed", "command"), [("machin", "machine"), ("conformence", "conformance"), *RENAMED.items()]
)
def test_an_unknown_command_is_refused_with_a_suggestion(typed: str, command: str) -> None:
    result = CliRunner().invoke(app, [typed, "--json"])
    assert result.exit_code == 2
    meant = f"no such command '{typed}'. Did you mean '{command}'?"
    assert result.stderr == f"forewarn: {meant} See 'root --help'.\n"


def test_former_names_of_commands_are_unknown() -> None:
    assert not RENAMED.keys() & COMMANDS.keys()
    assert set(RENAMED.values()) <= COMMANDS.keys()


def test_an_argument_that_is_not_utf8_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["machine", "show", os.fsdecode(b"web\xff")])
    assert result.exit_code == 2
    assert r"'web\udcff'" in result.stderr

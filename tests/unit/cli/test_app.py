"""The command line as a whole: names of commands that do not exist."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import COMMANDS, RENAMED, app


@pytest.mark.parametrize(
    ("typed", "command"), [("machin", "machine"), ("conformence", "conformance"), *RENAMED.items()]
)
def test_a_name_that_does_not_exist_gets_the_one_that_may_be_meant(
    typed: str, command: str
) -> None:
    result = CliRunner().invoke(app, [typed, "--json"])
    assert result.exit_code == 2
    meant = f"no such command '{typed}'. Did you mean '{command}'?"
    assert result.stderr == f"forewarn: {meant} See 'root --help'.\n"


def test_what_a_command_was_called_before_is_not_its_name_now() -> None:
    assert not RENAMED.keys() & COMMANDS.keys()
    assert set(RENAMED.values()) <= COMMANDS.keys()


def test_a_word_that_is_not_utf8_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["machine", "show", os.fsdecode(b"web\xff")])
    assert result.exit_code == 2
    assert r"'web\udcff'" in result.stderr

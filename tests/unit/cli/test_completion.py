"""Shell completion: the packaged scripts and man page are what the code would write now."""

from __future__ import annotations

import typer
import typer.main

from forewarn.cli import completion
from forewarn.cli.app import app
from helpers import write_man_page


def test_the_packaged_scripts_are_those_of_the_command() -> None:
    for shell, path in write_man_page.SCRIPTS.items():
        assert path.read_text() == completion.script(shell), (
            "make them anew: PYTHONPATH=tests python -m helpers.write_man_page"
        )


def test_the_packaged_man_page_describes_every_command_and_option() -> None:
    page = write_man_page.MAN_PAGE.read_text()
    assert page == write_man_page.man_page(), (
        "make it anew: PYTHONPATH=tests python -m helpers.write_man_page"
    )
    plain = page.replace("\\-", "-")
    for command in ("rollout plan", "event schedule", "completion", "status"):
        assert f".SS {command}\n" in plain
    assert "--short-notice" in plain


def test_every_name_of_something_in_the_service_is_completed() -> None:
    """A new argument or option for the name of a machine, group, host or event gets it, too."""
    named = {"machine", "group", "host", "event"}
    not_of_the_service = {"record", "scenario from-recording", "agent check"}
    missing = [
        f"{' '.join(path)}: {param.name}"
        for path, command in write_man_page.commands(typer.main.get_command(app))
        if " ".join(path) not in not_of_the_service
        for param in command.params
        if param.name in named and getattr(param, "_custom_shell_complete", None) is None
    ]
    assert missing == []


def test_without_a_service_there_are_no_suggestions() -> None:
    command = typer.main.get_command(app)
    context = typer.Context(command)
    context.params = {"url": "http://127.0.0.1:1"}
    assert list(completion.machines(context, "")) == []
    context.params = {"url": "not a URL"}
    assert list(completion.machines(context, "")) == []

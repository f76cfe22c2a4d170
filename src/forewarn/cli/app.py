"""The command line as a whole: which commands there are, and where each lives.

A room is read when its command is asked for, and all of them only for `--help`.
"""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

from forewarn import __version__
from forewarn.cli import credentials


class CommandModule(NamedTuple):
    """A module: its function of the command's name or, with help, all that its `app` has."""

    module: str
    help: str = ""
    settings: dict[str, Any] | None = None


ROOMS = {
    "dev": CommandModule("serve"),
    "serve": CommandModule("serve"),
    "apply": CommandModule("apply"),
    "history": CommandModule("history"),
    "feed": CommandModule("feed"),
    "backup": CommandModule("backup"),
    "restore": CommandModule("backup"),
    "upgrade": CommandModule("upgrade"),
    "run": CommandModule("run", settings={"allow_interspersed_args": False}),
    "record": CommandModule("record"),
    "watch": CommandModule("watch"),
    "judge": CommandModule("judge"),
    "timeline": CommandModule("timeline"),
    "verdict": CommandModule("verdict"),
    "config": CommandModule("config", "The settings of a service."),
    "machine": CommandModule("machine", "Machines, and what their users may ask for."),
    "group": CommandModule("group", "Groups: who shares a document."),
    "host": CommandModule("host", "Hosts, and the machines on them."),
    "event": CommandModule("event", "Events: schedule, approve, cancel, explain."),
    "rollout": CommandModule("rollout", "Rollouts over groups, labels or hosts."),
    "clock": CommandModule("clock", "The service's time."),
    "fault": CommandModule("fault", "Faults: what goes wrong on purpose."),
    "token": CommandModule("token", "Tokens: who may ask."),
    "scenario": CommandModule("scenario", "Scenarios: maintenance as a test."),
    "agent": CommandModule(
        "agent", "Inside a machine: prepare for its events, and put things back."
    ),
}


def entered(name: str) -> Any:
    """The command, or the group of commands, that lives there."""
    room = ROOMS[name]
    module = import_module(f"forewarn.cli.commands.{room.module}")
    hall = typer.Typer()
    hall.callback()(lambda: None)  # with which it is a group, whatever is in it
    if room.help:
        hall.add_typer(module.app, name=name, help=room.help)
    else:
        hall.command(name, context_settings=room.settings)(getattr(module, name))
    return typer.main.get_group(hall).commands[name]


class LazyCommands(UserDict[str, Any]):
    """By name; each is made when it is first wanted."""

    def __getitem__(self, name: str) -> Any:
        if (made := super().__getitem__(name)) is None:
            made = self[name] = entered(name)
        return made


class LazyGroup(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(dict.fromkeys(ROOMS))


app = typer.Typer(
    cls=LazyGroup,
    help="Scheduled Events for any fleet: tell machines, in time, what is about to happen.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forewarn {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with a token for the service; or FOREWARN_TOKEN(_FILE)."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(help="Who vouches for the service's certificate (PEM); or FOREWARN_CA."),
    ] = None,
) -> None:
    del version
    credentials.named(token_file, ca)

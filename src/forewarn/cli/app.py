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
    "config": CommandModule("config", "Check and show the settings of a service."),
    "machine": CommandModule(
        "machine", "List machines, and restart, redeploy, evict or delete them."
    ),
    "group": CommandModule(
        "group", "List groups (machines that share one document), and change their policy."
    ),
    "host": CommandModule("host", "List hosts, and maintain, degrade, fail or repair them."),
    "event": CommandModule("event", "Schedule, approve, cancel and explain events."),
    "rollout": CommandModule(
        "rollout", "Plan, start and follow rollouts over groups, labels or hosts."
    ),
    "clock": CommandModule("clock", "Show and control the service's clock."),
    "fault": CommandModule("fault", "Inject faults, and see which were consumed."),
    "token": CommandModule("token", "Create, list and revoke access tokens."),
    "scenario": CommandModule("scenario", "List, check and run scenarios: maintenance as a test."),
    "agent": CommandModule(
        "agent", "Run inside a machine: prepare it for events, and undo that afterwards."
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
    help="Scheduled Events for any fleet: announce maintenance to machines before it happens.",
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
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="Read the token from FILE. Default: FOREWARN_TOKEN or FOREWARN_TOKEN_FILE.",
            metavar="FILE",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            help="CA bundle (PEM) used to verify the service's certificate. Default: FOREWARN_CA.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    del version
    credentials.named(token_file, ca)

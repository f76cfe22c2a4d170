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


class Room(NamedTuple):
    """A module: its function of the command's name or, with help, all that its `app` has."""

    module: str
    help: str = ""
    settings: dict[str, Any] | None = None


ROOMS = {
    "dev": Room("serve"),
    "serve": Room("serve"),
    "apply": Room("apply"),
    "history": Room("history"),
    "feed": Room("feed"),
    "backup": Room("backup"),
    "restore": Room("backup"),
    "upgrade": Room("upgrade"),
    "run": Room("run", settings={"allow_interspersed_args": False}),
    "record": Room("record"),
    "watch": Room("watch"),
    "judge": Room("judge"),
    "timeline": Room("timeline"),
    "verdict": Room("verdict"),
    "config": Room("config", "The settings of a service."),
    "machine": Room("machine", "Machines, and what their users may ask for."),
    "group": Room("group", "Groups: who shares a document."),
    "host": Room("host", "Hosts, and the machines on them."),
    "event": Room("event", "Events: schedule, approve, cancel, explain."),
    "rollout": Room("rollout", "Rollouts over groups, labels or hosts."),
    "clock": Room("clock", "The service's time."),
    "fault": Room("fault", "Faults: what goes wrong on purpose."),
    "token": Room("token", "Tokens: who may ask."),
    "scenario": Room("scenario", "Scenarios: maintenance as a test."),
    "agent": Room("agent", "Inside a machine: prepare for its events, and put things back."),
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


class Commands(UserDict[str, Any]):
    """By name; each is made when it is first wanted."""

    def __getitem__(self, name: str) -> Any:
        if (made := super().__getitem__(name)) is None:
            made = self[name] = entered(name)
        return made


class House(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands(dict.fromkeys(ROOMS))


app = typer.Typer(
    cls=House,
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

"""The command line as a whole: its commands, and the module of each.

A module is imported when its command is called. A list of commands, as in `--help`, imports only
those whose docstring it shows.
"""

from __future__ import annotations

import inspect
from collections import UserDict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

from forewarn import __version__
from forewarn.cli import credentials
from forewarn.cli.usage import name_values, name_values_of_all, one_line_errors, unwrapped


class CommandModule(NamedTuple):
    """The module of a command, which is a function of that name or, with `help`, a group of
    commands called `app`."""

    module: str
    help: str = ""
    settings: dict[str, Any] | None = None


COMMANDS = {
    "dev": CommandModule("dev"),
    "serve": CommandModule("serve"),
    "node": CommandModule(
        "node",
        "Run the node of this host, check its settings, or list its machines for nftables.",
    ),
    "driver": CommandModule(
        "driver", "Run the driver process of this host, or check its settings."
    ),
    "status": CommandModule("status"),
    "tonight": CommandModule("tonight"),
    "apply": CommandModule("apply"),
    "history": CommandModule("history"),
    "feed": CommandModule("feed"),
    "backup": CommandModule("backup"),
    "restore": CommandModule("backup"),
    "upgrade": CommandModule("upgrade"),
    "move": CommandModule("move"),
    "restored": CommandModule("restored"),
    "fenced": CommandModule("fenced", settings={"allow_interspersed_args": False}),
    "run": CommandModule("run", settings={"allow_interspersed_args": False}),
    "record": CommandModule("record"),
    "watch": CommandModule("watch"),
    "conformance": CommandModule("conformance"),
    "timeline": CommandModule("timeline"),
    "verdict": CommandModule("verdict"),
    "config": CommandModule("config", "Check and show the settings of a service."),
    "machine": CommandModule(
        "machine", "List machines, and restart, redeploy, evict or delete them."
    ),
    "caller": CommandModule(
        "caller", "List callers of the metadata endpoint that do not belong to any machine."
    ),
    "group": CommandModule(
        "group", "List groups (machines that share one document), and change their policy."
    ),
    "host": CommandModule("host", "List hosts, and maintain, degrade, fail or repair them."),
    "event": CommandModule("event", "Schedule, approve, cancel and explain events."),
    "rollout": CommandModule(
        "rollout", "Plan, start and follow rollouts over groups, labels or hosts."
    ),
    "halt": CommandModule(
        "halt", "Halt the fleet, or a part of it: no event starts until the halt is released."
    ),
    "notify": CommandModule("notify", "See how notifications are delivered, and test them."),
    "maintenance": CommandModule(
        "maintenance", "List and set when maintenance may start: windows and blackouts."
    ),
    "control": CommandModule("control", "List the control nodes of a service."),
    "clock": CommandModule("clock", "Show and control the service's clock."),
    "fault": CommandModule("fault", "Inject faults, and see how often each was applied."),
    "token": CommandModule("token", "Create, list and revoke access tokens."),
    "scenario": CommandModule("scenario", "List, check and run scenarios: maintenance as a test."),
    "completion": CommandModule("completion"),
    "agent": CommandModule(
        "agent", "Run the agent inside a machine: prepare it for events, and undo that afterwards."
    ),
}

# What commands were called before, for a suggestion.
RENAMED = {"judge": "conformance"}


def _import(entry: CommandModule) -> Any:
    return import_module(f"forewarn.cli.commands.{entry.module}")


def load_command(name: str) -> Any:
    """Import a command, or a group of commands."""
    entry = COMMANDS[name]
    module = _import(entry)
    parent = typer.Typer()
    parent.callback()(lambda: None)  # so that it is a group, even with one command
    if entry.help:
        parent.add_typer(module.app, name=name, help=entry.help)
    else:
        parent.command(name, context_settings=entry.settings)(getattr(module, name))
    command = typer.main.get_group(parent).commands[name]
    name_values_of_all(command)
    return command


def describe_command(name: str) -> Any:
    """Return a command with its help alone."""
    entry = COMMANDS[name]
    text = entry.help or inspect.getdoc(getattr(_import(entry), name))
    return typer.core.TyperCommand(name, help=unwrapped(text))


class LazyCommands(UserDict[str, Any]):
    """Commands by name; each is imported when it is first used."""

    def __getitem__(self, name: str) -> Any:
        if (command := super().__getitem__(name)) is None:
            command = self[name] = load_command(name)
        return command


class LazyGroup(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(dict.fromkeys(COMMANDS))
        name_values(self)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return a command for a list of commands; `commands` has it in full."""
        return describe_command(cmd_name) if cmd_name in self.commands else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and (command := RENAMED.get(args[0])):
            ctx.fail(f"no such command '{args[0]}'. Did you mean '{command}'?")
        name, described, rest = super().resolve_command(ctx, args)
        return name, described and self.commands[str(name)], rest

    def make_context(self, *args: Any, **settings: Any) -> Any:
        with one_line_errors():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        with one_line_errors():
            return super().invoke(ctx)


app = typer.Typer(
    cls=LazyGroup,
    help="Scheduled Events for any fleet: announce maintenance to machines before it happens.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"forewarn {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
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
    credentials.set_options(token_file, ca)

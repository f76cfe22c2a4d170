"""`forewarn agent`: run the agent, or check its configuration and show its status."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.output import Json
from forewarn.support.text import either_of
from forewarn.wire.versions import TYPE_NAMES

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        envvar="FOREWARN_AGENT_CONFIG",
        help="Configuration file with rules and hooks (TOML).",
        show_default=True,
    ),
]
# For a subcommand: overrides the option before it.
OwnConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Configuration file with rules and hooks (TOML). Default: as for 'forewarn agent'.",
        show_default=False,
    ),
]
DEFAULT_CONFIG = Path("/etc/forewarn/agent.toml")

app = typer.Typer(invoke_without_command=True)


@app.callback()
def agent(
    context: typer.Context,
    config: ConfigFile = DEFAULT_CONFIG,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Log what would be done, without doing it.")
    ] = False,
) -> None:
    """Prepare this machine for its events, approve them, and undo the preparations afterwards."""
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    arguments = [str(config), *(["--dry-run"] if dry_run else [])]
    if os.name == "nt":  # exec is not possible there
        from forewarn.agent.main import main

        main(arguments)
        return
    # The modules that parse the command line take more memory than the agent itself.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-I", "-m", "forewarn.agent", *arguments])


@app.command()
def check(context: typer.Context, config: OwnConfigFile = None, json: Json = False) -> None:
    """Check the configuration, hooks and endpoint. Runs no hook; exits with 1 on a problem."""
    from forewarn.cli.commands import agent_check

    agent_check.check(config or context.obj, json)


@app.command("test")
def explain(
    context: typer.Context,
    type: Annotated[
        str,
        typer.Argument(
            help=f"Event type: {either_of(TYPE_NAMES)}.",
            autocompletion=completion.one_of(*TYPE_NAMES),
        ),
    ],
    source: Annotated[
        str,
        typer.Option(
            help="Source of the event: Platform or User.",
            autocompletion=completion.one_of("Platform", "User"),
        ),
    ] = "Platform",
    duration: Annotated[
        str | None, typer.Option(help="Duration of the impact, e.g. 9s. Default: unknown.")
    ] = None,
    notice: Annotated[str, typer.Option(help="Time until the NotBefore of the event.")] = "15m",
    peer: Annotated[
        bool, typer.Option("--peer", help="The event is for another machine of the group.")
    ] = False,
    label: Annotated[
        list[str] | None, typer.Option(help="Label of this machine. Repeatable.")
    ] = None,
    config: OwnConfigFile = None,
    json: Json = False,
) -> None:
    """Show what the agent would do about a hypothetical event. Runs nothing."""
    from forewarn.cli.commands import agent_check

    event = agent_check.HypotheticalEvent(type, source, duration, notice, peer, label or [])
    agent_check.explain(config or context.obj, event, json)


@app.command()
def status(context: typer.Context, config: OwnConfigFile = None, json: Json = False) -> None:
    """Show the status of the running agent: its endpoint, events and hooks."""
    from forewarn.cli.commands import agent_check

    agent_check.status(config or context.obj, json)

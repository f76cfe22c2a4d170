"""`forewarn agent`: acting inside a machine on what is about to happen to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.output import Json

ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config",
        envvar="FOREWARN_AGENT_CONFIG",
        help="Rules and hooks (TOML).",
        show_default=True,
    ),
]
# For a subcommand: what was said before it holds, unless it is said again.
OwnConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Rules and hooks (TOML).", show_default=False)
]
DEFAULT_CONFIG = Path("/etc/forewarn/agent.toml")

app = typer.Typer(invoke_without_command=True)


@app.callback()
def agent(
    context: typer.Context,
    config: ConfigFile = DEFAULT_CONFIG,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing of it.")
    ] = False,
) -> None:
    """Prepare this machine for its events, approve them, and put everything back afterwards."""
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    words = [str(config), *(["--dry-run"] if dry_run else [])]
    if os.name == "nt":  # there is no becoming another program there
        from forewarn.agent.main import main

        main(words)
        return
    # What has read these words takes more memory than all the agent needs.
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-I", "-m", "forewarn.agent", *words])


@app.command()
def check(context: typer.Context, config: OwnConfigFile = None, json: Json = False) -> None:
    """Is everything there that it will need? Runs no hook; exit code 1 if there is a problem."""
    from forewarn.cli.commands import agent_check

    agent_check.check(config or context.obj, json)


@app.command("test")
def invent(
    context: typer.Context,
    type: Annotated[str, typer.Argument(help="Of the event: Freeze, Reboot, …")],
    source: Annotated[str, typer.Option(help="Platform or User.")] = "Platform",
    duration: Annotated[
        str | None, typer.Option(help="Of its impact, as 9s; unknown if not said.")
    ] = None,
    notice: Annotated[str, typer.Option(help="Until its NotBefore.")] = "15m",
    peer: Annotated[bool, typer.Option("--peer", help="Of another machine of the group.")] = False,
    label: Annotated[list[str] | None, typer.Option(help="KEY=VALUE, of this machine.")] = None,
    config: OwnConfigFile = None,
    json: Json = False,
) -> None:
    """What would be done about an event like this? Asks nobody, and runs nothing."""
    from forewarn.cli.commands import agent_check

    said = agent_check.Invented(type, source, duration, notice, peer, label or [])
    agent_check.invent(config or context.obj, said, json)


@app.command()
def status(context: typer.Context, config: OwnConfigFile = None, json: Json = False) -> None:
    """How the agent that runs here stands: its endpoint, its events, its hooks."""
    from forewarn.cli.commands import agent_check

    agent_check.status(config or context.obj, json)

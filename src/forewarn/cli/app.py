"""The command line as a whole: which commands there are, and where each lives."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn import __version__
from forewarn.cli import (
    clock,
    events,
    fleet,
    groups,
    history,
    hosts,
    judging,
    machines,
    rollouts,
    serving,
)

app = typer.Typer(
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
) -> None:
    del version


app.command("dev")(serving.dev)
app.command("serve")(serving.serve)
app.command("apply")(fleet.apply)
app.add_typer(machines.app, name="machine", help="Machines, and what their users may ask for.")
app.add_typer(groups.app, name="group", help="Groups: who shares a document.")
app.add_typer(hosts.app, name="host", help="Hosts, and the machines on them.")
app.add_typer(events.app, name="event", help="Events: schedule, approve, cancel, explain.")
app.add_typer(rollouts.app, name="rollout", help="Rollouts over groups, labels or hosts.")
app.command("history")(history.history)
app.add_typer(clock.app, name="clock", help="The service's time.")
app.command("judge")(judging.judge)

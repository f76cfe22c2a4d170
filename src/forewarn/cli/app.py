"""The command line as a whole: which commands there are, and where each lives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn import __version__
from forewarn.cli import (
    clock,
    configuring,
    copies,
    credentials,
    events,
    faults,
    feed,
    fleet,
    groups,
    history,
    hosts,
    judging,
    machines,
    recording,
    rollouts,
    run,
    scenarios,
    serving,
    timeline,
    tokens,
    upgrading,
    verdict,
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


app.command("dev")(serving.dev)
app.command("serve")(serving.serve)
app.add_typer(configuring.app, name="config", help="The settings of a service.")
app.command("apply")(fleet.apply)
app.add_typer(machines.app, name="machine", help="Machines, and what their users may ask for.")
app.add_typer(groups.app, name="group", help="Groups: who shares a document.")
app.add_typer(hosts.app, name="host", help="Hosts, and the machines on them.")
app.add_typer(events.app, name="event", help="Events: schedule, approve, cancel, explain.")
app.add_typer(rollouts.app, name="rollout", help="Rollouts over groups, labels or hosts.")
app.command("history")(history.history)
app.command("feed")(feed.feed)
app.add_typer(clock.app, name="clock", help="The service's time.")
app.add_typer(faults.app, name="fault", help="Faults: what goes wrong on purpose.")
app.add_typer(tokens.app, name="token", help="Tokens: who may ask.")
app.command("backup")(copies.backup)
app.command("restore")(copies.restore)
app.command("upgrade")(upgrading.upgrade)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
scenarios.app.command("from")(recording.from_)
app.add_typer(scenarios.app, name="scenario", help="Scenarios: maintenance as a test.")
app.command("record")(recording.record)
app.command("judge")(judging.judge)
app.command("timeline")(timeline.timeline)
app.command("verdict")(verdict.verdict)

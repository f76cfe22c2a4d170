"""`forewarn halt`: keep everything that has not started from starting, until it is released."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import halts as operations
from forewarn.control.schema import halts as h
from forewarn.support.text import counted

app = typer.Typer(no_args_is_help=True)


@app.command()
@accepts_yes
def place(
    group: Annotated[
        list[str] | None,
        typer.Option(help="Halt only this group. Repeatable.", autocompletion=completion.groups),
    ] = None,
    label: Annotated[
        str,
        typer.Option(
            help="Halt only machines with these labels, e.g. tier=web,!canary.",
            autocompletion=completion.machine_labels,
        ),
    ] = "",
    host_label: Annotated[
        str,
        typer.Option(
            help="Halt only machines on hosts with these labels, e.g. row=7.",
            autocompletion=completion.host_labels,
        ),
    ] = "",
    note: Annotated[
        str, typer.Option(help="Reason; shown wherever an event waits for the halt.")
    ] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what the halt would cover, without placing it.")
    ] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Halt the whole fleet, or a part of it. Until the halt is released, no event starts, no matter
    who announced, approved or requested it; events that have started continue."""
    with service(url) as client:
        request = h.HaltRequest(
            groups=group or [], label=label, host_label=host_label, note=note, plan=plan
        )
        halt = client.place_halt(request)
    print_notes(halt.notes)
    if json:
        print_json(halt)
        return
    covered = f"{counted(halt.machines, 'machine')}, {counted(halt.events, 'scheduled event')}"
    if plan:
        say(f"would halt: {halt.scope} ({covered}); this is a plan, nothing has been halted")
        return
    say(f"halted: {halt.scope} ({covered})")
    say(f"to release it, run: forewarn halt release {halt.id[:8]}")


def _print_halts(halts: list[h.Halt], _client: ControlClient) -> None:
    rows = [
        (
            halt.id,
            halt.scope,
            str(halt.machines),
            str(halt.events),
            halt.by,
            time_text(halt.at),
            halt.note,
        )
        for halt in halts
    ]
    print_table(
        ("ID", "HALTED", "MACHINES", "EVENTS", "BY", "SINCE", "NOTE"),
        rows,
        minor=("NOTE", "BY"),
        if_empty="nothing is halted",
    )


def _print_released(halt: h.Halt, _client: ControlClient) -> None:
    say(f"released: {halt.scope} ({counted(halt.events, 'scheduled event')})")


add_commands(
    app,
    "halt",
    operations,
    prints={operations.LIST_HALTS: _print_halts, operations.RELEASE_HALT: _print_released},
)

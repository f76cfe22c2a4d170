"""`forewarn halt`: keep everything that has not started from starting, until it is released."""

from __future__ import annotations

import typer

from forewarn.cli.output import Table, print_notes, say
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import halts as operations
from forewarn.control.schema import halts as h
from forewarn.support.text import counted

app = typer.Typer(no_args_is_help=True)


def _print_placed(halt: h.Halt, _client: ControlClient) -> None:
    print_notes(halt.notes)
    covered = f"{counted(halt.machines, 'machine')}, {counted(halt.events, 'scheduled event')}"
    if not halt.id:
        say(f"would halt: {halt.scope} ({covered}); this is a plan, nothing has been halted")
        return
    say(f"halted: {halt.scope} ({covered})")
    say(f"to release it, run: forewarn halt release {halt.id[:8]}")


HALTS = Table(
    {
        "ID": "id",
        "HALTED": "scope",
        "MACHINES": "machines",
        "EVENTS": "events",
        "BY": "by",
        "SINCE": "at",
        "NOTE": "note",
    },
    minor=("NOTE", "BY"),
    if_empty="nothing is halted",
)


def _print_released(halt: h.Halt, _client: ControlClient) -> None:
    say(f"released: {halt.scope} ({counted(halt.events, 'scheduled event')})")


add_commands(
    app,
    "halt",
    operations,
    prints={
        operations.PLACE_HALT: _print_placed,
        operations.LIST_HALTS: HALTS,
        operations.RELEASE_HALT: _print_released,
    },
)

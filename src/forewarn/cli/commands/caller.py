"""`forewarn caller`: list."""

from __future__ import annotations

from operator import attrgetter

import typer

from forewarn.cli.output import Table, print_clock, print_items
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import machines as operations
from forewarn.control.schema import core as s

app = typer.Typer(no_args_is_help=True)


@app.callback()
def main() -> None:
    """List callers of the metadata endpoint that do not belong to any machine."""


CALLERS = Table(
    {
        "ADDRESS": "address",
        "HOST": "host",
        "REQUESTS": "requests",
        "FIRST": "first",
        "LAST": "last",
        "MACHINE": lambda caller: _machine(caller),
    },
    minor=("FIRST", "MACHINE", "HOST"),
    if_empty="every caller since the start of the service was a machine of the fleet",
)


def _print_callers(callers: list[s.UnknownCaller], client: ControlClient) -> None:
    latest_first = sorted(callers, key=attrgetter("last"), reverse=True)
    print_items(CALLERS, latest_first)
    print_clock(client)


def _machine(caller: s.UnknownCaller) -> str:
    if not caller.machine:
        return ""
    state = f"known to be on {caller.known_host}" if caller.known_host else "gone"
    return f"{caller.machine} ({state})"


add_commands(app, "caller", operations, prints={operations.LIST_UNKNOWN_CALLERS: _print_callers})

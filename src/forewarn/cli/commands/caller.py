"""`forewarn caller`: list."""

from __future__ import annotations

import typer

from forewarn.cli.output import (
    Json,
    Table,
    Url,
    print_clock,
    print_items,
    print_json,
    service,
)
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


@app.command("list")
def list_(json: Json = False, url: Url = None) -> None:
    """List addresses that call the metadata endpoint but belong to no machine."""
    with service(url) as client:
        callers = sorted(client.unknown_callers(), key=lambda c: c.last, reverse=True)
        if json:
            print_json(callers)
            return
        print_items(CALLERS, callers)
        print_clock(client)


def _machine(caller: s.UnknownCaller) -> str:
    if not caller.machine:
        return ""
    state = f"known to be on {caller.known_host}" if caller.known_host else "gone"
    return f"{caller.machine} ({state})"

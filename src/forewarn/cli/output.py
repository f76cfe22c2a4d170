"""What commands print: tables for people, JSON for programs, one clear line for an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from forewarn.cli.running import NotFound, find
from forewarn.control.client import ControlClient, ControlError

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="FOREWARN_URL", help="The control address of the service."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def fail(says: str) -> NoReturn:
    typer.echo(f"forewarn: {says}", err=True)
    raise typer.Exit(1)


@contextmanager
def service(url: str | None) -> Iterator[ControlClient]:
    """The service to talk to; whatever it refuses becomes one line and exit code 1."""
    try:
        yield ControlClient(url or find())
    except (ControlError, NotFound) as error:
        fail(str(error))


def parsed(parse: Callable[[str], Any], text: str | None) -> Any:
    """An option's value, or wrong usage."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def as_json(value: object) -> None:
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Ruled and coloured on a terminal; plain columns anywhere else."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        made = Table(*columns, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for row in rows:
            made.add_row(*row)
        Console().print(made)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        typer.echo(f"{name.ljust(width)}  {value}".rstrip())


def notes(said: Sequence[str]) -> None:
    for note in said:
        typer.echo(f"note: {note}", err=True)


def pace(client: ControlClient) -> None:
    """Under --speed every page says so."""
    clock = client.clock()
    if clock.virtual:
        typer.echo(f"virtual clock: it is {moment(clock.now)}", err=True)
    if clock.speed != 1:
        typer.echo(f"speed {clock.speed:g}: durations are divided by {clock.speed:g}", err=True)


def moment(time: datetime | None) -> str:
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%SZ")

"""What commands print: tables for people, JSON for programs, one clear line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from forewarn.cli.credentials import CredentialError, door, in_the_clear
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.node.daemon.discovery import NotFound, find
from forewarn.support.text import escaped, visible

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="FOREWARN_URL", help="URL of the service's control API."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


# What a hint of the service means to whoever types a command.
HINTS: dict[str, str] = {
    "force": "pass --force to override",
    "short-notice": "pass --short-notice to override",
    "select": "pass --group NAME, --label KEY=VALUE or --host NAME",
    "evacuate": "run 'forewarn machine redeploy {about}' first, or pass --evacuate",
    "accept-clock": "if the wall clock is right, run 'forewarn clock accept'",
    "schedule-preempt": "to evict it all the same, run 'forewarn event schedule Preempt {about}'",
    "explain-host": "'forewarn host explain {about}' names that event",
    "repair-host": "run 'forewarn host repair {about}', or move the machine with 'forewarn apply'",
    "create-token": "run 'forewarn token create'",
    "create-admin-token": "run 'forewarn token create NAME --role admin'",
    "revoke-token": "run 'forewarn token revoke {about}'",
    "clear-faults": "run 'forewarn fault clear'",
    "list-events": "'forewarn event list --all' lists those that are over, too",
    "configure-gates": "set [gates] in the file of 'forewarn serve', or pass --gate NAME=PROGRAM to"
    " 'forewarn dev'",
}


def say(line: str, *, err: bool = False) -> None:
    """One line, in which there may be words of guests, drivers and files."""
    typer.echo(visible(line), err=err)


def say_text(text: str) -> None:
    """Print several lines, escaping each: they may contain text from guests, drivers and files."""
    for line in text.removesuffix("\n").split("\n"):
        say(line)


def fail(says: str) -> NoReturn:
    say(f"forewarn: {says}", err=True)
    raise typer.Exit(1)


def fail_all(problems: Sequence[str]) -> NoReturn:
    """Several, a line each."""
    for problem in problems:
        say(f"forewarn: {problem}", err=True)
    raise typer.Exit(1)


@contextmanager
def service(url: str | None) -> Iterator[ControlClient]:
    """The service to talk to; whatever it refuses becomes one line and exit code 1."""
    try:
        found = door(url or find())
        if in_the_clear(found):
            say(f"note: the token is sent to {found.url} unencrypted; use https://", err=True)
        yield ControlClient(found)
    except ControlError as error:
        fail(refusal(error))
    except (CredentialError, NotFound) as error:
        fail(str(error))


def refusal(error: ControlError, file: str = "") -> str:
    """Say why the service refused, where in the file, and what to do about it."""
    problem = error.problem
    if problem is None:
        return str(error)
    place = file
    if problem.line is not None:
        place = f"{file}:{problem.line}" if file else f"line {problem.line}"
    message = f"{place}: {error}" if place else str(error)
    hint = problem.hint
    return f"{message}; {hint_text(hint.kind, hint.about)}" if hint is not None else message


def hint_text(kind: str, about: str) -> str:
    """Say what a hint means on the command line."""
    return HINTS.get(kind, kind).format(about=about)


def parsed(parse: Callable[[str], Any], text: str | None) -> Any:
    """An option's value, or wrong usage."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def as_json(value: object) -> None:
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError:  # a lone surrogate from a file, which has to be escaped
        text = json.dumps(msgspec.to_builtins(value), indent=2)
    typer.echo("\n".join(map(escaped, text.split("\n"))))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Ruled and coloured on a terminal; plain columns anywhere else."""
    rows = [[visible(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        made = Table(*columns, box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for row in rows:
            made.add_row(*map(Text, row))  # brackets are just that
        Console().print(made)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name.ljust(width)}  {value}".rstrip())


def notes(said: Sequence[str]) -> None:
    for note in said:
        say(f"note: {note}", err=True)


def pace(client: ControlClient) -> None:
    """Under --speed every page says so."""
    clock = client.clock()
    if clock.virtual:
        typer.echo(f"virtual clock: {moment(clock.now)}", err=True)
    if clock.speed != 1:
        typer.echo(f"speed {clock.speed:g}: durations are divided by {clock.speed:g}", err=True)


def moment(time: datetime | None) -> str:
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%SZ")

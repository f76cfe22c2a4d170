"""Output of the commands: tables for people, JSON for programs, and one clear line for an error."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, overload

import msgspec
import typer

from forewarn.cli.credentials import CredentialError, address_of, sends_token_unencrypted
from forewarn.cli.tables import table_lines
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.client.connection import service_urls
from forewarn.control.schema import core as s
from forewarn.node.daemon.discovery import NotFound, find
from forewarn.support.text import SECOND, escaped, parse_duration, visible


def _full_url(text: str | None) -> str | None:
    """Return the value of --url in full; an error is reported as wrong usage."""
    return parsed(service_urls, text) if text else None


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        callback=_full_url,
        envvar="FOREWARN_URL",
        help="URL of the service's control API, or those of its control nodes, separated by"
        " commas. Default: the service on this machine.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


# What the hints of the service mean on the command line.
HINTS: dict[str, str] = {
    "remove": "if that is intended, pass --remove {about}",
    "force": "pass --force to override",
    "short-notice": "pass --short-notice to override",
    "ignore-windows": "pass --ignore-windows to override",
    "select": "pass --group, --label, --machine, --host or --host-label",
    "conflicts": "pass --conflicts split, skip or evacuate; 'forewarn rollout plan' lists them",
    "lasts": "pass --window and --lasts",
    "allow-overlap": "pass --allow-overlap to start it anyway",
    "evacuate": "run 'forewarn machine redeploy {about}' first, or pass --evacuate",
    "accept-clock": "if the wall clock is right, run 'forewarn clock accept'",
    "schedule-preempt": "to evict it anyway, run 'forewarn event schedule Preempt {about}'",
    "explain-host": "'forewarn host explain {about}' names that event",
    "repair-host": "run 'forewarn host repair {about}', or move the machine with 'forewarn apply'",
    "record-move": "run 'forewarn machine moved {about} --to HOST' with the host that it is on",
    "create-token": "run 'forewarn token create'",
    "create-admin-token": "run 'forewarn token create NAME --role admin'",
    "revoke-token": "run 'forewarn token revoke {about}'",
    "clear-faults": "run 'forewarn fault clear'",
    "list-events": "'forewarn event list --all' also lists those that are over",
    "configure-gates": "set [gates] in the file of 'forewarn serve', or pass --gate NAME=PROGRAM to"
    " 'forewarn dev'",
    "enroll-again": "pass --again to allow it",
}

NOT_RUNNING = "is the service running? Start one with 'forewarn dev' or 'forewarn serve'"


def say(line: str, *, err: bool = False) -> None:
    """Print a line, escaping it: it may contain text from guests, drivers and files."""
    typer.echo(visible(line), err=err)


def say_text(text: str) -> None:
    """Print several lines, escaping each: they may contain text from guests, drivers and files."""
    for line in text.removesuffix("\n").split("\n"):
        say(line)


def fail(message: str, code: int = 1) -> NoReturn:
    """Print an error and exit with 1, or another code."""
    say(f"forewarn: {message}", err=True)
    raise typer.Exit(code)


def fail_all(problems: Sequence[str]) -> NoReturn:
    """Print several errors, a line each, and exit with 1."""
    for problem in problems:
        say(f"forewarn: {problem}", err=True)
    raise typer.Exit(1)


@contextmanager
def service(url: str | None) -> Iterator[ControlClient]:
    """Yield a client of the service. If a request is refused, print why and exit with 1."""
    try:
        address = address_of(url or find())
        for node in address.each():
            if sends_token_unencrypted(node):
                say(f"note: the token is sent to {node.url} unencrypted; use https://", err=True)
        client = ControlClient(address)
        client.on_wait = _note_waiting
        yield client
    except ControlError as error:
        others = error.problem.errors if error.problem is not None else []
        details = [other.detail for other in others if other.detail not in str(error)]
        fail_all([refusal(error), *details])
    except (CredentialError, NotFound) as error:
        fail(str(error))


def _note_waiting() -> None:
    say(
        "note: no control node decides at the moment; waiting until one takes over",
        err=True,
    )


def refusal(error: ControlError, file: str = "") -> str:
    """Return why the service refused, where in the file, and what to do about it."""
    problem = error.problem
    if problem is None:
        refused = isinstance(error.__cause__, ConnectionRefusedError)
        return f"{error}; {NOT_RUNNING}" if refused else str(error)
    place = file
    if problem.line is not None:
        place = f"{file}:{problem.line}" if file else f"line {problem.line}"
    message = f"{place}: {error}" if place else str(error)
    hint = problem.hint
    return f"{message}; {hint_text(hint.kind, hint.about)}" if hint is not None else message


def writable_place(path: Path | None) -> Path | None:
    """Check, before anything is done, that a file to be written is in a directory that exists."""
    try:
        exists = path is None or path.parent.is_dir()
    except OSError:
        exists = False
    if not exists:
        assert path is not None
        raise typer.BadParameter(f"the directory {path.parent} does not exist")
    return path


def hint_text(kind: str, about: str) -> str:
    """Return what a hint means on the command line."""
    return HINTS.get(kind, kind).format(about=about)


def parsed(parse: Callable[[str], Any], text: str | None, option: str | None = None) -> Any:
    """Parse the value of an option; an error is reported as wrong usage. `option` is the name of
    the option or argument, which a callback need not give."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        hint = None if option is None else f"'{option}'"
        raise typer.BadParameter(str(error), param_hint=hint) from error


@overload
def parsed_seconds(option: str, text: str) -> float: ...
@overload
def parsed_seconds(option: str, text: str | None) -> float | None: ...
def parsed_seconds(option: str, text: str | None) -> float | None:
    """Parse the duration that is the value of an option, as seconds."""
    duration = parsed(parse_duration, text, option)
    return None if duration is None else duration / SECOND


def print_json(value: object) -> None:
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate from a file, or a terminal without UTF-8
        text = json.dumps(msgspec.to_builtins(value), indent=2)
    typer.echo("\n".join(map(escaped, text.split("\n"))))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    minor: Sequence[str] = (),
    if_empty: str = "",
) -> None:
    """Print a table: fitted to a terminal, with every row on one line otherwise. `minor` are the
    columns that a narrow terminal shows below each row, the least important first. Without rows,
    print `if_empty` instead."""
    if not rows and if_empty:
        say(if_empty)
        return
    rows = [[visible(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in table_lines(columns, rows):
            typer.echo(line)
        return
    head, *lines = table_lines(columns, rows, shutil.get_terminal_size().columns, minor, rule="─")
    typer.echo(head if os.environ.get("TERM") == "dumb" else typer.style(head, bold=True))
    for line in lines:
        typer.echo(line)


class Table(NamedTuple):
    """How items are listed: in columns, each of which is an attribute or a function of an item."""

    columns: Mapping[str, str | Callable[[Any], object]]
    minor: Sequence[str] = ()  # as in `print_table`
    if_empty: str = ""
    if_filtered: str = ""  # what is printed instead if none of the items is wanted


def print_items(table: Table, items: Iterable[object], *, filtered: bool = False) -> None:
    rows = [
        [
            _cell(column(item) if callable(column) else getattr(item, column))
            for column in table.columns.values()
        ]
        for item in items
    ]
    if_empty = table.if_filtered if filtered and table.if_filtered else table.if_empty
    print_table(tuple(table.columns), rows, minor=table.minor, if_empty=if_empty)


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return time_text(value) if value is None or isinstance(value, datetime) else str(value)


def print_fields(pairs: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        say(f"{name.ljust(width)}  {value}".rstrip())


def print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(f"note: {note}", err=True)


def print_clock(client: ControlClient) -> None:
    """Print a reminder if the service runs on a virtual clock, or with --speed."""
    clock = client.clock_header
    if clock is None:
        return
    if clock.virtual:
        typer.echo(f"virtual clock: {time_text(clock.now)}", err=True)
    if clock.speed != 1:
        typer.echo(f"speed {clock.speed:g}: durations are divided by {clock.speed:g}", err=True)


def amounts_text(amounts: s.Size | s.Capacity) -> str:
    """Return what is known of the size of a machine or of the capacity of a host."""
    units = {"machines": "machines", "memory": "MiB of memory", "cpus": "CPUs"}
    known = {name: getattr(amounts, name, None) for name in units}
    return ", ".join(f"{amount:,} {units[name]}" for name, amount in known.items() if amount)


def coverage_text(coverage: s.Coverage) -> str:
    """Return how many machines poll, do not poll any more, or never did."""
    parts = [f"{coverage.listening:,} listening"]
    if coverage.silent:
        parts.append(f"{coverage.silent:,} silent for more than an hour")
    if coverage.never_polled:
        parts.append(f"{coverage.never_polled:,} never polled")
    if coverage.never_approves:
        parts.append(f"{coverage.never_approves:,} never approve")
    return ", ".join(parts)


def time_text(time: datetime | None) -> str:
    return "" if time is None else time.strftime("%Y-%m-%d %H:%M:%SZ")

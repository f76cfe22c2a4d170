"""`forewarn history`: show who did what and when, as a table, as JSON lines, or in a file."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from forewarn.cli.event_output import away_texts
from forewarn.cli.options import Fields
from forewarn.cli.output import Url, fail, print_clock, print_table, say, service, time_text
from forewarn.cli.plain import takes
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import history as operations
from forewarn.control.schema.feed import HistoryRecord
from forewarn.support.text import counted, escaped, listing

LINES = 50  # records in a table without --limit


@takes(operations.GET_HISTORY, without=("oldest_first", "after_seq"))
def history(
    fields: Fields,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Maximum number of entries. Default: {LINES} in a table, all otherwise.",
        ),
    ] = None,
    after_seq: Annotated[
        int | None,
        typer.Option(min=0, help="Only entries with a higher number, in the order of numbers."),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write all matching entries to this file, as JSON lines.")
    ] = None,
    output: Annotated[
        bool, typer.Option("--output", help="Also print the driver's output.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines instead of a table.")
    ] = False,
    url: Url = None,
) -> None:
    """Show the history: who announced, approved, started or cancelled what, newest last."""
    with service(url) as client:
        if export is not None:
            if limit is not None:
                raise typer.BadParameter(
                    "--export writes all matching entries and cannot be combined with --limit"
                )
            if after_seq is not None:
                raise typer.BadParameter("--after-seq cannot be combined with --export")
            say(f"{counted(_export(client, fields, export), 'record')} in {export}", err=True)
        elif json:
            for line in _json_lines(client, fields, limit, after_seq):
                sys.stdout.buffer.write(escaped(line.decode().rstrip("\n")).encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            if after_seq is None:
                records = client.last_records(fields, limit or LINES)
            else:
                records = list(client.history_after(fields, after_seq, limit or LINES))
            _show(records)
            if output:
                _show_outputs(records)
            print_clock(client)


def _json_lines(
    client: ControlClient, query: Fields, limit: int | None, after_seq: int | None
) -> Iterator[bytes]:
    import msgspec

    if limit is None and after_seq is None:
        yield from client.history_lines(query)
        return
    records: Iterable[HistoryRecord]
    if after_seq is not None:
        records = client.history_after(query, after_seq, limit)
    else:
        records = client.last_records(query, limit or LINES)
    for record in records:
        yield msgspec.json.encode(record) + b"\n"


def _export(client: ControlClient, query: Fields, path: Path) -> int:
    lines = client.history_lines(query)
    try:
        if _can_be_replaced(path):
            return _replace(lines, path.resolve())  # resolved, so that a link stays a link
        with path.open("ab") as file:
            return _write(lines, file)
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def _can_be_replaced(path: Path) -> bool:
    """Return whether the path is a regular file, or does not exist. Pipes, devices and the standard
    output (as /dev/stdout) are written to instead."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(status.st_mode) and not os.path.samestat(status, os.fstat(1))


def _replace(lines: Iterator[bytes], path: Path) -> int:
    """Write a temporary file, and rename it when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            count = _write(lines, file)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return count


def _write(lines: Iterator[bytes], file: IO[bytes]) -> int:
    """Write lines, and return their number."""
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    return count


def _show(records: list[HistoryRecord]) -> None:
    rows = [
        (
            time_text(record.at),
            record.what,
            record.by,
            _about(record),
            record.event,
            _note(record),
        )
        for record in records
    ]
    print_table(
        ("TIME", "WHAT", "BY", "ABOUT", "EVENT", "NOTE"),
        rows,
        minor=("NOTE", "EVENT", "BY"),
        if_empty="no matching entries",
    )


def _note(record: HistoryRecord) -> str:
    """Return the note of an entry and, of an event that has started, who had not been warned; of
    one that was carried out, for how long machines stood still."""
    uninformed = [name for name, since in (record.shown or {}).items() if since is None]
    warning = f"not shown before to {listing(uninformed)}" if uninformed else ""
    measured = record.answer.get("away")  # a driver of somebody else may have given something else
    away = away_texts(measured) if isinstance(measured, dict) else []
    still = f"stood still: {listing(away)}" if away else ""
    return "; ".join(filter(None, (record.note, warning, still)))


def _show_outputs(records: list[HistoryRecord]) -> None:
    for record in records:
        if record.output:
            say("")
            say(f"{time_text(record.at)}  {record.what}  {_about(record)}  {record.event}")
            for line in record.output.splitlines():
                say(f"  {line}")


def _about(record: HistoryRecord) -> str:
    """Return what an entry is about: its machines or, if there are none, its group or host."""
    subject = ", ".join(record.machines) or record.group or record.host
    if record.what.startswith("host-"):
        subject = record.host
    if record.what.startswith("rollout-"):
        subject = record.cause
    return f"{record.type} {subject}".strip()

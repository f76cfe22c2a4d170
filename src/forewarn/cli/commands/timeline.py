"""`forewarn timeline`: draw a recording, in the terminal or in a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli.output import fail, say, say_text, writable_place

if TYPE_CHECKING:
    from forewarn.testing.timeline import Lanes

KINDS = (".html", ".txt")


def timeline(
    files: Annotated[list[Path], typer.Argument(help="Traces written by --record.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file: .html or .txt.", callback=writable_place),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the drawing.")] = None,
) -> None:
    """Draw a timeline of recorded traffic, with a lane for each machine."""
    from forewarn.judge.reading.recording_file import read_files
    from forewarn.testing import timeline
    from forewarn.testing.timeline import Lanes

    if output is not None and output.suffix.lower() not in KINDS:
        raise typer.BadParameter(f"'{output.name}' should end in .html or .txt")
    records: list[Mapping[str, Any]] = []
    unreadable = 0
    try:
        for record in read_files(files):
            if isinstance(record, Mapping) and isinstance(record.get("kind"), str):
                records.append(record)
            else:
                unreadable += 1
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if unreadable > len(files):  # a service that is killed may leave one incomplete line
        fail(f"{unreadable} lines cannot be read; is this a trace?")
    lanes = Lanes.of(records)
    if not lanes.picture().recorded:
        fail("the trace is empty, so there is nothing to draw")
    if title is None:
        title = ", ".join(file.name for file in files)
    if output is None:
        _show(lanes, title)
        return
    if output.suffix.lower() == ".html":
        drawing = timeline.html(lanes, verdict=_verdict(records), title=title)
    else:
        drawing = timeline.text(lanes, title=title)
    try:
        output.write_text(drawing, encoding="utf-8", errors="replace")
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    say(f"{output}: {len(drawing.encode('utf-8', 'replace')):,} bytes", err=True)


def _show(lanes: Lanes, title: str) -> None:
    from forewarn.testing.timeline import live, text
    from forewarn.testing.timeline.terminal_lane import SHAPES

    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(live(lanes, title=title, full=True))
    else:
        encoding = sys.stdout.encoding or "utf-8"
        signs = "".join(shape.sign for shape in SHAPES.values())
        ascii_only = signs.encode(encoding, "ignore").decode(encoding) != signs
        drawing = text(lanes, title=title, ascii_only=ascii_only)
        say_text(drawing.encode(encoding, "replace").decode(encoding))


def _verdict(records: list[Mapping[str, Any]]) -> Any:
    from forewarn.traces.lines import time_of
    from forewarn.verdict.observer import Observer

    observer = Observer()
    for record in sorted(records, key=lambda record: time_of(record) or 0.0):
        observer.add(record)
    return observer.verdict()

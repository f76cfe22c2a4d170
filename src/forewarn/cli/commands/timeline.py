"""`forewarn timeline`: a recording as a picture, in the terminal or in a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli.output import fail, say, say_text

if TYPE_CHECKING:
    from forewarn.testing.timeline import Lanes

KINDS = (".svg", ".html", ".txt")


def timeline(
    files: Annotated[list[Path], typer.Argument(help="Traces written by --record.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Output file: .svg, .html or .txt."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the drawing.")] = None,
) -> None:
    """Draw a timeline of recorded traffic, with a lane for each machine."""
    from forewarn.judge.trace import read_lines
    from forewarn.testing import timeline
    from forewarn.testing.timeline import Lanes

    if output is not None and output.suffix.lower() not in KINDS:
        raise typer.BadParameter(f"'{output.name}' should end in .svg, .html or .txt")
    heard: list[Mapping[str, Any]] = []
    strange = 0
    try:
        for record in read_lines(files):
            if isinstance(record, Mapping) and isinstance(record.get("kind"), str):
                heard.append(record)
            else:
                strange += 1
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if strange > len(files):  # a torn last line each is what a kill leaves behind
        fail(f"{strange} lines cannot be read; is this a trace?")
    lanes = Lanes.of(heard)
    if not lanes.picture().recorded:
        fail("the trace is empty, so there is nothing to draw")
    named = title if title is not None else ", ".join(file.name for file in files)
    if output is None:
        _show(lanes, named)
        return
    match output.suffix.lower():
        case ".svg":
            drawn = timeline.svg(lanes, title=named)
        case ".html":
            drawn = timeline.html(lanes, verdict=_verdict(heard), title=named)
        case _:
            drawn = timeline.text(lanes, title=named)
    try:
        output.write_text(drawn, encoding="utf-8", errors="replace")
    except OSError as error:
        fail(f"{output}: {error.strerror}")
    say(f"{output}: {len(drawn.encode('utf-8', 'replace')):,} bytes", err=True)


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
        plain = signs.encode(encoding, "ignore").decode(encoding) != signs
        said = text(lanes, title=title, ascii_only=plain)
        say_text(said.encode(encoding, "replace").decode(encoding))


def _verdict(lines: list[Mapping[str, Any]]) -> Any:
    """What the guests did about it, read off the same lines."""
    from forewarn.traces.lines import time_of
    from forewarn.verdict.observer import Observer

    observer = Observer()
    for line in sorted(lines, key=lambda line: time_of(line) or 0.0):
        observer.add(line)
    return observer.verdict()

"""`forewarn judge`: which promises a recording shows broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.output import Json, as_json, fail, notes, table


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Traces, as --record writes them, or texts with documents in them."),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List what is looked for.")] = False,
    json: Json = False,
) -> None:
    """Read recorded traffic and say what was broken: early starts, lost approvals, leaks, …"""
    from forewarn.testing import judge as judging
    from forewarn.testing.recording.doubting import doubted

    if rules:
        if json:
            as_json(judging.RULES)
        else:
            table(("RULE", "WHAT IS PROMISED"), [(n, d) for n, d in judging.RULES.items()])
        return
    if not files:
        raise typer.BadParameter("name at least one trace")
    try:
        judgement = judging.judge(doubted(_records(files)))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    if not judgement.exchanges:
        fail("no exchange is recorded there, so there is nothing to judge")
    if judgement.unreadable > len(files):  # a torn last line each is what a kill leaves behind
        fail(f"{judgement.unreadable} lines cannot be read; is that a trace?")
    if json:
        as_json(judgement.as_dict())
    else:
        typer.echo(judgement.render())
    if not judgement.ok:
        raise typer.Exit(1)


def _records(files: list[Path]) -> Iterator[Any]:
    """The lines of traces, and those that documents in a text make."""
    from forewarn.testing.judge.trace import read_lines
    from forewarn.testing.recording.reading import texts

    pasted = texts(files)
    for found in pasted.values():
        notes(found.notes)
        yield from found.lines
    yield from read_lines([file for file in files if file not in pasted])

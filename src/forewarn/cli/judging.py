"""`forewarn judge`: which promises a recording shows broken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.output import Json, as_json, fail, table


def judge(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Traces, as --record writes them.")
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List what is looked for.")] = False,
    json: Json = False,
) -> None:
    """Read recorded traffic and say what was broken: early starts, lost approvals, leaks, …"""
    from forewarn.testing import judge as judging

    if rules:
        if json:
            as_json(judging.RULES)
        else:
            table(("RULE", "WHAT IS PROMISED"), [(n, d) for n, d in judging.RULES.items()])
        return
    if not files:
        raise typer.BadParameter("name at least one trace")
    try:
        judgement = judging.judge_files(files)
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

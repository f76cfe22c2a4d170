"""Confirmation of commands that destroy something, or take away notice that was promised.

On a terminal, a command says whom it concerns and asks. Elsewhere nobody can answer, so that it
needs --yes. Commands that change something without asking accept --yes as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

from forewarn.cli.output import fail, say

NOT_CONFIRMED = 2  # exit code, as for wrong usage

Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking for confirmation.")]


def accepts_yes(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that never asks the option --yes, so that scripts need not know which ask."""

    @wraps(command)
    def call(*, yes: bool = False, **values: Any) -> None:
        del yes
        command(**values)

    option = typer.Option("--yes", help="Accepted, although nothing is asked.", hidden=True)
    parameters = [
        *signature(command, eval_str=True).parameters.values(),
        Parameter("yes", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]),
    ]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def confirm(concerns: str) -> None:
    """Ask whether to do what the sentence says; for a command that was called without --yes."""
    if not _on_terminal():
        fail(f"{concerns}; pass --yes to confirm", NOT_CONFIRMED)
    say(concerns, err=True)
    if not typer.confirm("Continue?", err=True):
        fail("nothing was changed")


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()

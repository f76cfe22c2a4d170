"""Confirmation of commands that destroy something, or take away notice that was promised.

On a terminal, a command says whom it concerns and asks. Elsewhere nobody can answer, so that it
needs --yes.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from forewarn.cli.output import fail, say

NOT_CONFIRMED = 2  # exit code, as for wrong usage

Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking for confirmation.")]


def confirm(concerns: str) -> None:
    """Ask whether to do what the sentence says; for a command that was called without --yes."""
    if not _on_terminal():
        fail(f"{concerns}; pass --yes to confirm", NOT_CONFIRMED)
    say(concerns, err=True)
    if not typer.confirm("Continue?", err=True):
        fail("nothing was changed")


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()

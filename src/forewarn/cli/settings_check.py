"""What `forewarn config check`, `forewarn node check` and `forewarn driver check` print."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from forewarn.cli.output import fail_all, print_json, say

if TYPE_CHECKING:
    from forewarn.support.finding import Finding


def print_findings(check: Callable[[], Iterable[Finding]], json: bool) -> None:
    """Print what a check of settings finds. Exits with 1 if they cannot be used."""
    from forewarn.node.settings.model import SettingsError

    problems: list[str] = []
    warnings: list[str] = []
    try:
        for finding in check():
            (problems if finding.grade == "problem" else warnings).append(str(finding))
    except SettingsError as error:
        problems += error.problems
    if json:
        print_json({"usable": not problems, "problems": problems, "warnings": warnings})
        raise typer.Exit(1 if problems else 0)
    for warning in warnings:
        say(f"warning: {warning}", err=True)
    if problems:
        fail_all(problems)
    say("the settings are valid")

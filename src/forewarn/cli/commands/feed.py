"""`forewarn feed`: print every change as it happens, even across restarts of the service."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from forewarn.cli.options import Fields
from forewarn.cli.output import Url, say, service, time_text
from forewarn.cli.plain import takes
from forewarn.control.operations import feed as operations
from forewarn.control.schema.feed import FeedChange, FeedCommit
from forewarn.support.text import escaped


@takes(operations.FOLLOW_FEED)
def feed(
    fields: Fields,
    after: Annotated[
        int | None, typer.Option(min=0, help="Start after this commit. Default: now.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many commits.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per commit.")
    ] = False,
    url: Url = None,
) -> None:
    """Follow all changes, each commit once and in order, until Ctrl-C."""
    lost = False

    def report_lost(why: str) -> None:
        nonlocal lost
        if not lost:
            say(f"{why}; reconnecting to the service", err=True)
        lost = True

    with service(url) as client:
        try:
            for commit in client.follow(after, fields, report_lost):
                lost = False
                _show(commit, json)
                if limit is not None:
                    limit -= 1
                    if not limit:
                        return
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _show(commit: FeedCommit, json: bool) -> None:
    if json:
        typer.echo(escaped(msgspec.json.encode(commit).decode()))
        return
    for change in commit.changes:
        say(f"{commit.seq}  {time_text(commit.at)}  {_text(change)}")


def _text(change: FeedChange) -> str:
    """Return what happened, to what, by whom, and why."""
    subject = ", ".join(change.machines) or change.group or change.host or change.cause
    if change.what.startswith("host-"):
        subject = change.host
    if change.what.startswith("rollout-"):
        subject = change.cause
    parts = [change.what, f"{change.type} {subject}".strip(), change.event]
    if change.by:
        parts.append(f"by {change.by}")
    if change.note:
        parts.append(f"({change.note})")
    return "  ".join(part for part in parts if part)

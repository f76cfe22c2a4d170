"""`forewarn feed`: every change as it happens, also over restarts of the service."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from forewarn.cli.output import Url, moment, say, service
from forewarn.control.schema.feed import FeedChange, FeedCommit
from forewarn.support.text import escaped


def feed(
    after: Annotated[
        int | None, typer.Option(min=0, help="Start after this commit. Default: now.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only changes of this group.")] = None,
    what: Annotated[
        str | None,
        typer.Option(help="Only these kinds of changes, separated by commas: raised,started,…"),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many commits.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per commit.")
    ] = False,
    url: Url = None,
) -> None:
    """Follow all changes, each commit once and in order, until Ctrl-C."""
    gone = ""

    def away(why: str) -> None:
        nonlocal gone
        if not gone:
            say(f"{why}; reconnecting to the service", err=True)
        gone = why

    with service(url) as client:
        try:
            for commit in client.follow(after, {"group": group, "what": what}, away):
                gone = ""
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
        say(f"{commit.seq}  {moment(commit.at)}  {_words(change)}")


def _words(change: FeedChange) -> str:
    """What happened, to what, by whom, and why."""
    who = ", ".join(change.machines) or change.group or change.host or change.cause
    if change.what.startswith("host-"):
        who = change.host
    if change.what.startswith("rollout-"):
        who = change.cause
    said = [change.what, f"{change.type} {who}".strip(), change.event]
    if change.by:
        said.append(f"by {change.by}")
    if change.note:
        said.append(f"({change.note})")
    return "  ".join(one for one in said if one)

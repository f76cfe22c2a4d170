"""`forewarn group`: list, show, disable."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.output import Json, Url, as_json, fields, pace, service, table

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A group's name.")]


@app.command("list")
def list_(json: Json = False, url: Url = None) -> None:
    """All groups, and whether they are listening."""
    with service(url) as client:
        found = client.groups()
        if json:
            as_json(found)
            return
        rows = [
            (
                group.name,
                group.kind,
                "yes" if group.enabled else "no",
                str(group.incarnation or ""),
                str(len(group.machines)),
                str(len(group.events)),
            )
            for group in found
        ]
        table(("GROUP", "KIND", "LISTENING", "INCARNATION", "MACHINES", "EVENTS"), rows)
        pace(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """One group."""
    with service(url) as client:
        found = client.group(name)
        if json:
            as_json(found)
            return
        limit = found.user_event_limit
        fields(
            [
                ("group", found.name),
                ("kind", found.kind),
                ("listening", "yes" if found.enabled else "no: no machine has asked for events"),
                ("incarnation", str(found.incarnation) if found.enabled else "none"),
                ("machines", ", ".join(found.machines)),
                ("events", ", ".join(found.events) or "none"),
                ("user events", "no limit" if limit is None else f"at most {limit} at a time"),
                ("approved at once", ", ".join(found.auto_approve) or "nothing"),
            ]
        )
        pace(client)


@app.command()
def disable(name: Name, json: Json = False, url: Url = None) -> None:
    """Forget that the group was listening, as after a day without a poll."""
    with service(url) as client:
        found = client.disable(name)
        if json:
            as_json(found)
        else:
            typer.echo(f"group '{found.name}' is not listening; its next poll enables it again")
            pace(client)

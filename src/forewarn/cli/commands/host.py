"""`forewarn host`: list, show, explain, and what happens to the machines on one."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.commands.event import timed, told_all, waiting
from forewarn.cli.output import (
    Json,
    Url,
    as_json,
    fields,
    moment,
    pace,
    parsed,
    say,
    service,
    table,
)
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the host.")]
Note = Annotated[str, typer.Option(help="Note for the history.")]
WAYS = "Freeze, Reboot or live-migration"


@app.command("list")
def list_(
    label: Annotated[
        str | None, typer.Option(help="Only hosts with these labels, e.g. rack=1,!old.")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all hosts with their health and number of machines."""
    with service(url) as client:
        found = client.hosts(label)
        if json:
            as_json(found)
            return
        rows = [
            (
                host.name,
                host.health,
                moment(host.since),
                str(len(host.machines)),
                str(len(host.events)),
                ",".join(f"{key}={value}" for key, value in host.labels.items()),
            )
            for host in found
        ]
        table(("HOST", "HEALTH", "SINCE", "MACHINES", "EVENTS", "LABELS"), rows)
        pace(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one host."""
    with service(url) as client:
        found = client.host(name)
        if json:
            as_json(found)
            return
        since = f" since {moment(found.since)}" if found.since else ""
        fields(
            [
                ("host", found.name),
                ("health", f"{found.health}{since}"),
                ("note", found.note),
                ("labels", ", ".join(f"{k}={v}" for k, v in found.labels.items()) or "none"),
                ("machines", ", ".join(found.machines) or "none"),
                ("events", ", ".join(found.events) or "none"),
            ]
        )
        pace(client)


@app.command()
def maintain(
    name: Name,
    how: Annotated[str, typer.Option("--type", help=f"{WAYS}.")] = "Freeze",
    evacuate: Annotated[
        bool, typer.Option("--evacuate", help="Move the machines away one by one instead.")
    ] = False,
    notice: Annotated[str | None, typer.Option(help="Notice, e.g. 1h.")] = None,
    not_before: Annotated[
        str | None, typer.Option(help="Start time (RFC 3339), instead of a notice.")
    ] = None,
    short_notice: Annotated[
        bool,
        typer.Option(
            "--short-notice", help="Allow less notice than is documented for this event type."
        ),
    ] = False,
    description: Annotated[
        str | None, typer.Option(help="Description in the machines' document.")
    ] = None,
    duration: Annotated[
        int | None, typer.Option(help="Duration of the impact in seconds; 0: none, -1: unknown.")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Maintain a host: announced to every group on it, and carried out once for all."""
    length = parsed(parse_duration, notice)
    request = s.MaintainRequest(
        mode=how,
        evacuate=evacuate,
        notice=None if length is None else length / SECOND,
        not_before=parsed(timed, not_before),
        short_notice=short_notice,
        description=description,
        duration=duration,
    )
    with service(url) as client:
        told_all(client.on_host("maintain", name, request), json, client)


@app.command()
def degrade(
    name: Name,
    notice: Annotated[str, typer.Option(help="Time until it is expected to fail, e.g. 7d.")] = "7d",
    note: Note = "",
    json: Json = False,
    url: Url = None,
) -> None:
    """Mark a host as degraded: every machine on it is redeployed before it fails."""
    request = s.DegradeRequest(notice=parsed(parse_duration, notice) / SECOND, note=note)
    with service(url) as client:
        told_all(client.on_host("degrade", name, request), json, client)


@app.command()
def fail(name: Name, note: Note = "", json: Json = False, url: Url = None) -> None:
    """Simulate a sudden failure: a Redeploy that has started for every machine on the host."""
    with service(url) as client:
        told_all(client.on_host("fail", name, s.FailRequest(note=note)), json, client)


@app.command()
def repair(name: Name, json: Json = False, url: Url = None) -> None:
    """Mark a host as healthy, and cancel what was scheduled because it was not."""
    with service(url) as client:
        told_all(client.on_host("repair", name), json, client, f"host '{name}' is healthy")


@app.command()
def explain(name: Name, json: Json = False, url: Url = None) -> None:
    """Explain what is scheduled on a host, and what it is waiting for."""
    with service(url) as client:
        found = client.explain_host(name)
        if json:
            as_json(found)
            return
        say(f"host '{found.name}': {found.message}")
        for plan in found.plans:
            say("")
            for event in plan.events:
                names = ", ".join(event.machines)
                say(f"{event.type} {event.id} for {names} of {event.group}: {event.status}")
            if not plan.holds:
                say(plan.message)
            waiting(plan.holds)
        pace(client)

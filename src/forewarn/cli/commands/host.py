"""`forewarn host`: list, show, explain, maintain, degrade, fail, repair."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import parse_time, print_holds, print_outcomes, type_names
from forewarn.cli.output import (
    Json,
    Url,
    parsed,
    print_clock,
    print_fields,
    print_json,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)
HOST_TYPES = type_names(lambda traits: traits.host_maintenance)
Name = Annotated[str, typer.Argument(help="Name of the host.", autocompletion=completion.hosts)]
Note = Annotated[str, typer.Option(help="Note for the history.")]


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
        hosts = client.hosts(label)
        if json:
            print_json(hosts)
            return
        rows = [
            (
                host.name,
                host.health,
                time_text(host.since),
                str(len(host.machines)),
                str(len(host.events)),
                ",".join(f"{key}={value}" for key, value in host.labels.items()),
            )
            for host in hosts
        ]
        print_table(
            ("HOST", "HEALTH", "SINCE", "MACHINES", "EVENTS", "LABELS"),
            rows,
            minor=("LABELS", "EVENTS", "MACHINES"),
            if_empty="no host matches" if label else "there are no hosts",
        )
        print_clock(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one host."""
    with service(url) as client:
        host = client.host(name)
        if json:
            print_json(host)
            return
        since = f" since {time_text(host.since)}" if host.since else ""
        print_fields(
            [
                ("host", host.name),
                ("health", f"{host.health}{since}"),
                ("note", host.note),
                ("labels", ", ".join(f"{k}={v}" for k, v in host.labels.items()) or "none"),
                ("machines", ", ".join(host.machines) or "none"),
                ("events", ", ".join(host.events) or "none"),
            ]
        )
        print_clock(client)


@app.command()
def maintain(
    name: Name,
    mode: Annotated[
        str, typer.Option("--type", help=f"Event type ({HOST_TYPES}), or live-migration.")
    ] = "Freeze",
    evacuate: Annotated[
        bool,
        typer.Option("--evacuate", help="Move the machines to other hosts one by one instead."),
    ] = False,
    notice: Annotated[
        str | None,
        typer.Option(help="Notice, e.g. 20m. Default: as documented for the event type."),
    ] = None,
    not_before: Annotated[
        str | None, typer.Option(help="Start time instead of a notice, e.g. 2030-01-31T18:00:00Z.")
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
    notice_us = parsed(parse_duration, notice, "--notice")
    request = s.MaintainRequest(
        mode=mode,
        evacuate=evacuate,
        notice=None if notice_us is None else notice_us / SECOND,
        not_before=parsed(parse_time, not_before, "--not-before"),
        short_notice=short_notice,
        description=description,
        duration=duration,
    )
    with service(url) as client:
        print_outcomes(client.on_host("maintain", name, request), json, client)


@app.command()
def degrade(
    name: Name,
    notice: Annotated[str, typer.Option(help="Time until it is expected to fail, e.g. 7d.")] = "7d",
    note: Note = "",
    json: Json = False,
    url: Url = None,
) -> None:
    """Mark a host as degraded: every machine on it is redeployed before it fails."""
    request = s.DegradeRequest(
        notice=parsed(parse_duration, notice, "--notice") / SECOND, note=note
    )
    with service(url) as client:
        print_outcomes(client.on_host("degrade", name, request), json, client)


@app.command()
def fail(name: Name, note: Note = "", json: Json = False, url: Url = None) -> None:
    """Simulate a sudden failure: a Redeploy that has started for every machine on the host."""
    with service(url) as client:
        print_outcomes(client.on_host("fail", name, s.FailRequest(note=note)), json, client)


@app.command()
def repair(name: Name, json: Json = False, url: Url = None) -> None:
    """Mark a host as healthy, and cancel what was scheduled because it was not."""
    with service(url) as client:
        print_outcomes(client.on_host("repair", name), json, client, f"host '{name}' is healthy")


@app.command()
def explain(name: Name, json: Json = False, url: Url = None) -> None:
    """Explain what is scheduled on a host, and what it is waiting for."""
    with service(url) as client:
        explanation = client.explain_host(name)
        if json:
            print_json(explanation)
            return
        say(f"host '{explanation.name}': {explanation.message}")
        for plan in explanation.plans:
            say("")
            for event in plan.events:
                names = ", ".join(event.machines)
                say(f"{event.type} {event.id} for {names} of {event.group}: {event.status}")
            if not plan.holds:
                say(plan.message)
            print_holds(plan.holds)
        print_clock(client)

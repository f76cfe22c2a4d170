"""`forewarn event`: list, show, schedule, approve, cancel, explain, retry, finish."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from forewarn.cli.output import (
    Json,
    Url,
    as_json,
    fields,
    moment,
    notes,
    pace,
    parsed,
    say,
    service,
    table,
)
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.core.events import EventType
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)
TYPES = ", ".join(type.value for type in EventType)


def _id(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("pass the ID of an event, or a prefix of it")
    return text


Id = Annotated[str, typer.Argument(callback=_id, help="ID of the event, or a prefix of it.")]


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option(help="Only machines of this group.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Also list events that are over.")] = False,
    limit: Annotated[
        int, typer.Option(help="Maximum number of events that are over.", min=1, max=1000)
    ] = 100,
    json: Json = False,
    url: Url = None,
) -> None:
    """List events that are scheduled or have started."""
    with service(url) as client:
        found = client.events(group=group, past=all, limit=limit)
        if json:
            as_json(found)
            return
        listed(found)
        pace(client)


@app.command()
def show(id: Id, json: Json = False, url: Url = None) -> None:
    """Show one event, also if it is over."""
    with service(url) as client:
        found = client.event(id)
        if json:
            as_json(found)
            return
        _show(found)
        pace(client)


@app.command()
def schedule(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TYPE] [MACHINE]...", help=f"Type ({TYPES}), machines."),
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", help="Event type, instead of the first argument.")
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine", "--machines", help="Machine; repeatable, or separated by commas."
        ),
    ] = None,
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
    description: Annotated[str, typer.Option(help="Description in the machines' document.")] = "",
    duration: Annotated[
        int, typer.Option(help="Duration of the impact in seconds; 0: none, -1: unknown.")
    ] = -1,
    source: Annotated[
        str, typer.Option(help="Source of the event: Platform or User.")
    ] = "Platform",
    json: Json = False,
    url: Url = None,
) -> None:
    """Schedule an event: forewarn event schedule Reboot web_0 --notice 20m"""
    said = list(words or [])
    kind = type or (said.pop(0) if said else None)
    if kind is None:
        raise typer.BadParameter(
            "pass an event type and a machine: forewarn event schedule Reboot web_0"
        )
    machines = [*said, *(name for m in machine or [] for name in m.split(",") if name)]
    if not machines:
        raise typer.BadParameter(f"pass at least one machine: forewarn event schedule {kind} web_0")
    length = parsed(parse_duration, notice)
    request = s.ScheduleRequest(
        type=kind,
        machines=machines,
        notice=None if length is None else length / SECOND,
        not_before=parsed(timed, not_before),
        short_notice=short_notice,
        description=description,
        duration=duration,
        source=source,
    )
    with service(url) as client:
        told(client.schedule(request), json, client)


@app.command()
def approve(id: Id, json: Json = False, url: Url = None) -> None:
    """Approve an event as an operator: it starts without waiting for its notice."""
    with service(url) as client:
        told(client.on_event("approve", id), json, client)


@app.command()
def cancel(id: Id, json: Json = False, url: Url = None) -> None:
    """Cancel an event that has not started."""
    with service(url) as client:
        told(client.on_event("cancel", id), json, client)


@app.command()
def retry(id: Id, json: Json = False, url: Url = None) -> None:
    """Carry a started event out again, because it was not carried out."""
    with service(url) as client:
        told(client.on_event("retry", id), json, client)


@app.command()
def finish(
    id: Id,
    reason: Annotated[str, typer.Option(help="Reason, for the history.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Declare a started event finished, whatever its driver reports."""
    with service(url) as client:
        told(client.on_event("finish", id, s.FinishRequest(reason=reason)), json, client)


@app.command()
def explain(id: Id, json: Json = False, url: Url = None) -> None:
    """Explain what an event is waiting for, until when at most, and what would unblock it."""
    with service(url) as client:
        found = client.explain(id)
        if json:
            as_json(found)
            return
        explained(found)
        seen = ", ".join(f"{name} at {moment(at)}" for name, at in found.seen_by.items())
        if seen:
            say(f"seen by {seen}")
        elif found.event.unannounced:
            say("unannounced: it is not listed in the machines' document")
        elif not found.event.ended_at:
            say("no machine has polled it yet")
        if found.event.ready:
            say(f"ready: {', '.join(found.event.ready)}")
        pace(client)


def explained(found: s.Explanation) -> None:
    """Where an event stands and what it waits for."""
    event = found.event
    say(f"{event.type} {event.id} for {', '.join(event.machines)}: {event.status}")
    if not found.holds:
        say(found.message)
    elif event.approved and event.status == "Scheduled":
        say(f"approved by {event.approved.by} at {moment(event.approved.at)}, but waits")
    waiting(found.holds)
    if event.status == "Started":
        say(f"if it did not happen, run: forewarn event retry {event.id}")
        say(f"if it is over, run: forewarn event finish {event.id} --reason …")


def waiting(holds: list[s.Hold]) -> None:
    for hold in holds:
        until = f", until {moment(hold.until)} at most" if hold.until else ", no time is set"
        if hold.kind == "driver" and hold.until:
            until = f", the next look is at {moment(hold.until)}"
        say(f"- {hold.kind}: {hold.message}")
        say(f"  since {moment(hold.since)}{until}")
        if hold.waits_for:
            say(f"  waits for {', '.join(hold.waits_for)}")
        say(f"  unblocked by {hold.unblocked_by}")


def told(outcome: s.Outcome, json: bool, client: ControlClient) -> None:
    """What a verb brought about."""
    if json:
        as_json(outcome)
        return
    _show(outcome)
    notes(outcome.notes)
    pace(client)


def told_all(outcomes: s.Outcomes, json: bool, client: ControlClient, done: str = "") -> None:
    """What a verb about several events brought about."""
    if json:
        as_json(outcomes)
        return
    if outcomes.events:
        listed(outcomes.events)
    if done:
        say(done)
    notes(outcomes.notes)
    pace(client)


def listed(events: list[s.Event]) -> None:
    table(
        ("EVENT", "GROUP", "TYPE", "STATUS", "SOURCE", "MACHINES", "NOT BEFORE", "APPROVED BY"),
        [_row(event) for event in events],
    )


def _show(event: s.Event) -> None:
    approved = f"by {event.approved.by} at {moment(event.approved.at)}" if event.approved else "no"
    fields(
        [
            ("event", event.id),
            ("type", f"{event.type} ({event.source})"),
            ("status", _status(event, f"held: {event.held}")),
            ("group", event.group),
            ("machines", ", ".join(event.machines)),
            *([("host", event.host)] if event.host else []),
            ("not before", moment(event.not_before)),
            ("description", event.description),
            ("impact", _impact(event.duration)),
            ("raised", f"by {event.raised_by} at {moment(event.raised_at)}"),
            ("approved", approved),
            ("started", moment(event.started_at) or "no"),
            ("ended", f"{moment(event.ended_at)}: {event.ending}" if event.ended_at else "no"),
        ]
    )


def _status(event: s.Event, held: str) -> str:
    marks = ["unannounced"] * event.unannounced + [held] * bool(event.held)
    return ", ".join([event.status, *marks])


def _impact(seconds: int) -> str:
    return {-1: "unknown", 0: "none"}.get(seconds, f"{seconds} s")


def _row(event: s.Event) -> tuple[str, ...]:
    return (
        event.id,
        event.group,
        event.type,
        _status(event, "held"),
        event.source,
        ", ".join(event.machines),
        moment(event.not_before),
        event.approved.by if event.approved else "",
    )


def timed(text: str) -> datetime:
    """A time as an option says it; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a time; write 2030-01-31T18:00:00Z") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time

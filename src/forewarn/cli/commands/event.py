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
        raise typer.BadParameter("give the id of an event, or its first characters")
    return text


Id = Annotated[str, typer.Argument(callback=_id, help="An event's id, or its first characters.")]


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    limit: Annotated[int, typer.Option(help="How many that are over.", min=1, max=1000)] = 100,
    json: Json = False,
    url: Url = None,
) -> None:
    """Events that are scheduled or have started."""
    with service(url) as client:
        found = client.events(group=group, past=all, limit=limit)
        if json:
            as_json(found)
            return
        listed(found)
        pace(client)


@app.command()
def show(id: Id, json: Json = False, url: Url = None) -> None:
    """One event, also when it is over."""
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
    type: Annotated[str | None, typer.Option("--type", help="The type, as an option.")] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--machine", "--machines", help="A machine; repeat, or separate by commas."),
    ] = None,
    notice: Annotated[
        str | None, typer.Option(help="How long before, e.g. 20m; default: what is promised.")
    ] = None,
    not_before: Annotated[
        str | None, typer.Option(help="The time instead of a notice, e.g. 2030-01-31T18:00:00Z.")
    ] = None,
    short_notice: Annotated[
        bool, typer.Option("--short-notice", help="Yes, less notice than is promised.")
    ] = False,
    description: Annotated[str, typer.Option(help="Words for the guests.")] = "",
    duration: Annotated[
        int, typer.Option(help="Length of the impact in seconds; 0 none, -1 unknown.")
    ] = -1,
    source: Annotated[str, typer.Option(help="Platform or User.")] = "Platform",
    json: Json = False,
    url: Url = None,
) -> None:
    """Announce an event: forewarn event schedule Reboot web_0 --notice 20m"""
    said = list(words or [])
    kind = type or (said.pop(0) if said else None)
    if kind is None:
        raise typer.BadParameter("say what to schedule: forewarn event schedule Reboot web_0")
    machines = [*said, *(name for m in machine or [] for name in m.split(",") if name)]
    if not machines:
        raise typer.BadParameter(f"say for which machine: forewarn event schedule {kind} web_0")
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
    """Let an event start without waiting for its notice, as an operator."""
    with service(url) as client:
        told(client.on_event("approve", id), json, client)


@app.command()
def cancel(id: Id, json: Json = False, url: Url = None) -> None:
    """Withdraw an event that has not started."""
    with service(url) as client:
        told(client.on_event("cancel", id), json, client)


@app.command()
def retry(id: Id, json: Json = False, url: Url = None) -> None:
    """Have a started event carried out again: it did not happen."""
    with service(url) as client:
        told(client.on_event("retry", id), json, client)


@app.command()
def finish(
    id: Id,
    reason: Annotated[str, typer.Option(help="Why; it goes into the record.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Declare a started event over, whatever its driver says."""
    with service(url) as client:
        told(client.on_event("finish", id, s.FinishRequest(reason=reason)), json, client)


@app.command()
def explain(id: Id, json: Json = False, url: Url = None) -> None:
    """What an event waits for, since when, until when at most, and who could move it."""
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
            say("it is unannounced: guests are never shown it")
        elif not found.event.ended_at:
            say("no machine has seen it yet")
        if found.event.ready:
            say(f"ready are {', '.join(found.event.ready)}")
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

"""`forewarn event`: list, show, schedule, approve, cancel, explain, retry, finish."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.output import (
    Json,
    Url,
    parsed,
    print_clock,
    print_fields,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.core.events import EventType, TypeTraits, types_that
from forewarn.core.time import SECOND
from forewarn.support.text import either_of, parse_duration

app = typer.Typer(no_args_is_help=True)
TYPES = ", ".join(type.value for type in EventType)


def type_names(trait: Callable[[TypeTraits], bool]) -> str:
    """Return the names of the event types with a trait, as alternatives, for help texts."""
    return either_of([type.value for type in types_that(trait)])


def _id(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("pass the ID of an event, or a prefix of it")
    return text


Id = Annotated[
    str,
    typer.Argument(
        callback=_id,
        help="ID of the event, or a prefix of it.",
        autocompletion=completion.events,
    ),
]


@app.command("list")
def list_(
    group: Annotated[
        str | None,
        typer.Option(help="Only events of this group.", autocompletion=completion.groups),
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="Also list events that are over.")] = False,
    limit: Annotated[
        int, typer.Option(help="Maximum number of events that are over.", min=1, max=1000)
    ] = 100,
    json: Json = False,
    url: Url = None,
) -> None:
    """List events that are scheduled or have started."""
    with service(url) as client:
        events = client.events(group=group, past=all, limit=limit)
        if json:
            print_json(events)
            return
        of_group = f" of group '{group}'" if group else ""
        active = "" if all else " is scheduled or has started; --all lists those that are over"
        print_events(events, if_empty=f"no event{of_group}{active or ' is stored'}")
        print_clock(client)


@app.command()
def show(id: Id, json: Json = False, url: Url = None) -> None:
    """Show one event, even if it is over."""
    with service(url) as client:
        event = client.event(id)
        if json:
            print_json(event)
            return
        _show(event)
        print_clock(client)


@app.command()
def schedule(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TYPE] [MACHINE]...",
            help=f"Event type ({TYPES}), then the machines.",
            autocompletion=completion.types_and_machines,
        ),
    ] = None,
    type: Annotated[
        str | None, typer.Option("--type", help="Event type, instead of the first argument.")
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option(
            "--machine",
            "--machines",
            help="Machine; repeatable, or separated by commas.",
            autocompletion=completion.machines,
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
    """Schedule an event, e.g. forewarn event schedule Reboot web_0 --notice 20m"""
    names = list(arguments or [])
    event_type = type or (names.pop(0) if names else None)
    if event_type is None:
        raise typer.BadParameter(
            "pass an event type and a machine: forewarn event schedule Reboot web_0"
        )
    names += [name for option in machine or [] for name in option.split(",") if name]
    if not names:
        raise typer.BadParameter(
            f"pass at least one machine: forewarn event schedule {event_type} web_0"
        )
    notice_us = parsed(parse_duration, notice, "--notice")
    request = s.ScheduleRequest(
        type=event_type,
        machines=names,
        notice=None if notice_us is None else notice_us / SECOND,
        not_before=parsed(parse_time, not_before, "--not-before"),
        short_notice=short_notice,
        description=description,
        duration=duration,
        source=source,
    )
    with service(url) as client:
        print_outcome(client.schedule(request), json, client)


@app.command()
def approve(id: Id, json: Json = False, url: Url = None) -> None:
    """Approve an event as an operator, so that it can start before its notice has passed."""
    with service(url) as client:
        print_outcome(client.on_event("approve", id), json, client)


@app.command()
def cancel(id: Id, json: Json = False, url: Url = None) -> None:
    """Cancel an event that has not started."""
    with service(url) as client:
        print_outcome(client.on_event("cancel", id), json, client)


@app.command()
def retry(id: Id, json: Json = False, url: Url = None) -> None:
    """Carry out a started event again, if it did not happen."""
    with service(url) as client:
        print_outcome(client.on_event("retry", id), json, client)


@app.command()
def finish(
    id: Id,
    reason: Annotated[str, typer.Option(help="Reason, for the history.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Declare a started event finished, whatever its driver reports."""
    with service(url) as client:
        print_outcome(client.on_event("finish", id, s.FinishRequest(reason=reason)), json, client)


@app.command()
def explain(id: Id, json: Json = False, url: Url = None) -> None:
    """Explain what an event is waiting for, until when at most, and what would unblock it."""
    with service(url) as client:
        explanation = client.explain(id)
        event = explanation.event
        if json:
            print_json(explanation)
            return
        _print_explanation(explanation)
        seen = ", ".join(f"{name} at {time_text(at)}" for name, at in explanation.seen_by.items())
        if seen:
            say(f"seen by {seen}")
        elif event.unannounced:
            say("unannounced: it is not listed in the machines' document")
        elif not event.ended_at:
            say("no machine has polled it yet")
        if event.ready:
            say(f"ready: {', '.join(event.ready)}")
        print_clock(client)


def _print_explanation(explanation: s.Explanation) -> None:
    event = explanation.event
    say(f"{event.type} {event.id} for {', '.join(event.machines)}: {event.status}")
    if not explanation.holds:
        say(explanation.message)
    elif event.approved and event.status == "Scheduled":
        say(f"approved by {event.approved.by} at {time_text(event.approved.at)}, but waiting")
    print_holds(explanation.holds)
    if event.status == "Started":
        say(f"if it did not happen, run: forewarn event retry {event.id}")
        say(f"if it is over, run: forewarn event finish {event.id} --reason …")


def print_holds(holds: list[s.Hold]) -> None:
    """Print what an event waits for, since when, until when, and what would unblock it."""
    for hold in holds:
        until = (
            f", until {time_text(hold.until)} at most" if hold.until else ", without a time limit"
        )
        if hold.kind == "driver" and hold.until:
            until = f", the next attempt is at {time_text(hold.until)}"
        say(f"- {hold.kind}: {hold.message}")
        say(f"  since {time_text(hold.since)}{until}")
        if hold.waits_for:
            say(f"  waits for {', '.join(hold.waits_for)}")
        say(f"  unblocked by {hold.unblocked_by}")


def print_outcome(outcome: s.Outcome, json: bool, client: ControlClient) -> None:
    """Print the event that a command has created or changed."""
    if json:
        print_json(outcome)
        return
    _show(outcome)
    print_notes(outcome.notes)
    print_clock(client)


def print_outcomes(
    outcomes: s.Outcomes, json: bool, client: ControlClient, last_line: str = ""
) -> None:
    """Print the events that a command has created or changed, and a last line."""
    if json:
        print_json(outcomes)
        return
    if outcomes.events:
        print_events(outcomes.events)
    if last_line:
        say(last_line)
    print_notes(outcomes.notes)
    print_clock(client)


def print_events(events: list[s.Event], if_empty: str = "") -> None:
    print_table(
        ("EVENT", "GROUP", "TYPE", "STATUS", "SOURCE", "MACHINES", "NOT BEFORE", "APPROVED BY"),
        [_row(event) for event in events],
        minor=("SOURCE", "APPROVED BY", "GROUP", "STATUS", "MACHINES", "TYPE"),
        if_empty=if_empty,
    )


def _show(event: s.Event) -> None:
    approved = (
        f"by {event.approved.by} at {time_text(event.approved.at)}" if event.approved else "no"
    )
    print_fields(
        [
            ("event", event.id),
            ("type", f"{event.type} ({event.source})"),
            ("status", _status(event, f"held: {event.held}")),
            ("group", event.group),
            ("machines", ", ".join(event.machines)),
            *([("host", event.host)] if event.host else []),
            ("not before", time_text(event.not_before)),
            ("description", event.description),
            ("impact", _impact(event.duration)),
            ("raised", f"by {event.raised_by} at {time_text(event.raised_at)}"),
            ("approved", approved),
            ("started", time_text(event.started_at) or "no"),
            ("ended", f"{time_text(event.ended_at)}: {event.ending}" if event.ended_at else "no"),
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
        time_text(event.not_before),
        event.approved.by if event.approved else "",
    )


def parse_time(text: str) -> datetime:
    """Parse the value of an option that is a time; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a time; write 2030-01-31T18:00:00Z") from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time

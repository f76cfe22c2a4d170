"""`forewarn event`: list, show, schedule, approve, ready, cancel, explain, retry, finish,
abandon."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer

from forewarn.cli import completion
from forewarn.cli.confirm import Yes, confirm
from forewarn.cli.event_output import (
    print_event,
    print_events,
    print_holds,
    print_outcome,
    shown_to,
)
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Url,
    fail_all,
    print_clock,
    print_json,
    print_notes,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands, takes
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import events as operations
from forewarn.control.schema import core as s
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words, listing

# What an operator can do about an event, by the kind of the advice.
ADVICE = {
    "approve": "to start it now, without waiting for its machines, run:"
    " forewarn event approve {event}",
    "retry": "if it did not happen, run: forewarn event retry {event}; or, to give it up,"
    " forewarn event abandon {event} --reason …",
    "finish": "if it did happen, run: forewarn event finish {event} --reason …",
    "accept-clock": "if the wall clock is right, run: forewarn clock accept",
}

# After what a command announces, for a confirmation of --ignore-windows.
WOULD_IGNORE_WINDOWS = (
    "would ignore the maintenance windows and blackouts that were set for its machines, and could"
    " start outside of them"
)
NO_MATCH = "no scheduled event matches"

app = typer.Typer(no_args_is_help=True)


def _id(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("pass the ID of an event, or a prefix of it")
    return text


@app.command("list")
@takes(operations.LIST_EVENTS, without=("past",))
def list_(
    fields: Fields,
    all: Annotated[bool, typer.Option("--all", help="Also list events that are over.")] = False,
    limit: Annotated[
        int, typer.Option(help="Maximum number of events that are over.", min=1, max=1000)
    ] = 100,
    json: Json = False,
    url: Url = None,
) -> None:
    """List events that are scheduled or have started."""
    with service(url) as client:
        events = client.events(limit=limit, past=all, **fields)
        if json:
            print_json(events)
            return
        matching = " that matches" if fields.keys() - {"order"} else ""
        active = "" if all else " is scheduled or has started; --all lists those that are over"
        print_events(events, if_empty=f"no event{matching}{active or ' is stored'}")
        print_clock(client)


def _scheduling(_client: ControlClient, request: s.ScheduleRequest) -> str:
    if not request.ignore_windows:
        return ""
    return f"{request.type} of {listing(request.machines)} {WOULD_IGNORE_WINDOWS}"


def _approval(client: ControlClient, id: str, *, ignore_windows: bool) -> str:
    event = client.event(id)
    broken = [_shortened(event, client.status().clock.now)]
    if ignore_windows and event.status == "Scheduled":
        broken.append(f"{_described(event)} {WOULD_IGNORE_WINDOWS}")
    return "; ".join(filter(None, broken))


def _shortened(event: s.Event, now: datetime) -> str:
    """Return whose notice an approval takes away; empty if there is none left."""
    left = round((event.not_before - now).total_seconds())
    if event.status != "Scheduled" or event.approved is not None or left <= 0:
        return ""
    return (
        f"{_described(event)} could start at once, and its machines would lose their remaining"
        f" notice of {in_words(left * SECOND)} (until {time_text(event.not_before)})"
    )


def _described(event: s.Event) -> str:
    """Return which event a command is about, for a confirmation."""
    host = f" (maintenance of host {event.host})" if event.host else ""
    return f"{event.type} of {listing(event.machines)} in group {event.group}{host}"


@app.command()
@takes(operations.CANCEL_EVENTS, without=("ids", "plan"))
def cancel(
    id: Annotated[
        str | None,
        typer.Argument(
            help="ID of the event, or a prefix of it. Without it, select events with options.",
            autocompletion=completion.events,
        ),
    ] = None,
    *,
    fields: Fields,
    yes: Yes = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """Cancel an event that has not started, or all that match the options, after showing them."""
    request = s.CancelEventsRequest(**fields)
    selects = request != s.CancelEventsRequest(reason=request.reason)
    if (id is not None) is selects:
        raise typer.BadParameter("pass the ID of an event, or options that select events")
    with service(url) as client:
        if id is not None:
            why = s.CancelRequest(reason=request.reason)
            print_outcome(client.cancel(_id(id), why), json, client)
            return
        if not yes:
            request = _confirmed(client, request)
        cancelled = client.cancel_events(request)
        print_notes(cancelled.notes)
        if json:
            print_json(cancelled)
        else:
            count = counted(len(cancelled.events), "event")
            say(f"{count} cancelled" if cancelled.events else NO_MATCH)
            print_clock(client)
        if cancelled.refused:
            fail_all([f"not cancelled: {refused}" for refused in cancelled.refused])


def _confirmed(client: ControlClient, request: s.CancelEventsRequest) -> s.CancelEventsRequest:
    """Show which events a request would cancel; if that is confirmed, return a request for exactly
    these."""
    planned = client.cancel_events(msgspec.structs.replace(request, plan=True))
    if not planned.events:
        say(NO_MATCH)
        raise typer.Exit
    print_events(planned.events)
    print_notes(planned.notes)
    groups = list(dict.fromkeys(event.group for event in planned.events))
    confirm(
        f"{counted(len(planned.events), 'event')} of {counted(len(groups), 'group')} would be"
        f" cancelled: {listing(groups)}"
    )
    ids = [event.id for event in planned.events]
    return s.CancelEventsRequest(ids=ids, reason=request.reason)


def _print_details(event: s.EventDetails, client: ControlClient) -> None:
    print_event(event, shown_to(event))
    print_clock(client)


def _print_course(explanation: s.Explanation, client: ControlClient) -> None:
    event = explanation.event
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
    _print_listeners(explanation)
    for advice in explanation.advice:
        moved = "".join(f" --moved {machine}=HOST" for machine in advice.moved)
        say(ADVICE[advice.kind].format(event=advice.event) + moved)
    print_clock(client)


def _print_explanation(explanation: s.Explanation) -> None:
    event = explanation.event
    say(f"{event.type} {event.id} for {', '.join(event.machines)}: {event.status}")
    if not explanation.holds:
        say(explanation.message)
    elif event.approved and event.status == "Scheduled":
        say(f"approved by {event.approved.by} at {time_text(event.approved.at)}, but waiting")
    print_holds(explanation.holds)


def _print_listeners(explanation: s.Explanation) -> None:
    """Print who will not see an event, because nobody there polls."""
    event, silent = explanation.event, explanation.not_listening
    never = [name for name, last in silent.items() if last is None]
    if never:
        say(f"not warned, because no program there has ever polled: {listing(never)}")
    since = [f"{name} (last {time_text(last)})" for name, last in silent.items() if last]
    if since:
        say(f"not warned, because no program there polls any more: {listing(since)}")
    if event.approved:
        return
    if explanation.unheard:
        notice_over = all(hold.kind != "notice" for hold in explanation.holds)
        starts = (
            "as soon as nothing above holds it any longer"
            if notice_over
            else f"at {time_text(event.not_before)}, if nothing else holds it"
        )
        say(f"nobody in group '{event.group}' will approve it; it starts {starts}")
    elif silent:
        say(f"other machines of group '{event.group}' poll and can approve it")


add_commands(
    app,
    "event",
    operations,
    prints={operations.GET_EVENT: _print_details, operations.EXPLAIN_EVENT: _print_course},
    concerns={operations.SCHEDULE_EVENT: _scheduling, operations.APPROVE_EVENT: _approval},
)

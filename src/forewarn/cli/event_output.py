"""Output of events and of what they wait for, for the commands that change or show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forewarn.cli.output import (
    print_clock,
    print_fields,
    print_json,
    print_notes,
    print_table,
    say,
    time_text,
)
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.support.text import counted


def print_outcome(outcome: s.Outcome, json: bool, client: ControlClient) -> None:
    """Print the event that a command has created or changed."""
    if json:
        print_json(outcome)
        return
    print_event(outcome)
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
        minor=("SOURCE", "APPROVED BY", "GROUP", "MACHINES", "STATUS", "TYPE"),
        if_empty=if_empty,
    )


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


def print_event(event: s.Event, more: Iterable[tuple[str, str]] = ()) -> None:
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
            *([("moving", _moving(event.targets))] if event.targets else []),
            ("not before", f"{time_text(event.not_before)}{_postponed(event)}"),
            *([("windows", "ignored, by an operator")] if event.ignore_windows else []),
            ("description", event.description or "none"),
            *([("ticket", event.ticket)] if event.ticket else []),
            ("impact", _impact(event.duration)),
            *([("stood still", ", ".join(away_texts(event.away)))] if event.away else []),
            ("raised", f"by {event.raised_by} at {time_text(event.raised_at)}"),
            ("approved", approved),
            ("started", time_text(event.started_at) or "no"),
            *([("waits for", ", ".join(event.waits_for))] if event.waits_for else []),
            ("ended", f"{time_text(event.ended_at)}: {event.ending}" if event.ended_at else "no"),
            *more,
        ]
    )


def shown_to(event: s.EventDetails) -> Iterator[tuple[str, str]]:
    """Yield since when the machines of an event have been shown it, which of them had not been when
    it started, and how far the driver is."""
    since = {name: event.seen_by[name] for name in event.machines if name in event.seen_by}
    shown = ", ".join(f"{name} since {time_text(at)}" for name, at in since.items())
    yield "shown to", shown or "none of its machines"
    if event.not_warned:
        yield "not warned", ", ".join(event.not_warned)
    if event.ended_at and event.started_at:
        yield "back", ", ".join(event.back) or "none of its machines has polled since"
    if event.progress:
        yield "progress", event.progress


def _postponed(event: s.Event) -> str:
    if not event.postponed:
        return ""
    first, last = event.postponed[0], event.postponed[-1]
    times = counted(len(event.postponed), "time")
    last_by = f"last by {last.by}" if last.by else "last with the maintenance of its host"
    return f", postponed {times} from {time_text(first.before)}, {last_by}"


def _status(event: s.Event, held: str) -> str:
    marks = ["unannounced"] * event.unannounced + [held] * bool(event.held)
    return ", ".join([event.status, *marks])


def _moving(targets: dict[str, str]) -> str:
    return ", ".join(f"{machine} to {host}" for machine, host in targets.items())


def away_texts(away: Mapping[str, object]) -> list[str]:
    """Return for how long each machine stood still; without what is not a number."""
    return [
        f"{machine} for {f'{seconds:.6f}'.rstrip('0').rstrip('.')} s"
        for machine, seconds in away.items()
        if isinstance(seconds, int | float)
    ]


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

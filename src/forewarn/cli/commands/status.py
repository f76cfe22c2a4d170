"""`forewarn status`: one screen about a service: what runs, what has started, what is next, what
waits and why, and what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec
import typer

from forewarn.cli.output import Json, Url, coverage_text, print_json, say, service, time_text
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.control.schema import rollouts as r
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words, listing

SHOWN = 5  # lines of a section; the others are counted
OVER = ("aborted", "done")  # states of rollouts that have ended

T = TypeVar("T")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """An event that could have started, and why it has not."""

    event: s.Event
    reason: str = ""  # only of the first few


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    url: str
    service: s.Status
    started: list[s.Event]
    next: list[s.Event]
    waiting: list[Waiting]
    rollouts: list[r.Rollout]


def status(json: Json = False, url: Url = None) -> None:
    """Summarize the service: what has started, what is next, what is waiting and why, and what
    needs attention. Exits with 1 if anything does."""
    with service(url) as client:
        overview = _read(client)
        if json:
            print_json(overview)
        else:
            _print(overview)
    if overview.service.problems:
        raise typer.Exit(1)


def _read(client: ControlClient) -> Overview:
    state = client.status()
    events = sorted(client.events(), key=lambda event: (event.not_before, event.id))
    rollouts = [rollout for rollout in client.rollouts() if rollout.state not in OVER]
    now = state.clock.now
    scheduled = [event for event in events if event.status == "Scheduled"]
    overdue = [event for event in scheduled if event.approved or event.not_before <= now]
    return Overview(
        url=client.url,
        service=state,
        started=[event for event in events if event.status == "Started"],
        next=[event for event in scheduled if event not in overdue],
        waiting=[
            Waiting(event=event, reason=client.explain(event.id).message if number < SHOWN else "")
            for number, event in enumerate(overdue)
        ],
        rollouts=rollouts,
    )


def _problem(problem: s.StatusProblem) -> str:
    text = problem.message
    if problem.since is not None:
        text += f" (since {time_text(problem.since)})"
    if problem.expires is not None:
        text += f" at {time_text(problem.expires)}"
    return f"{text}; {problem.advice}" if problem.advice else text


def _print(overview: Overview) -> None:
    state = overview.service
    now = state.clock.now
    say(f"forewarn {state.version} at {overview.url}")
    say(
        f"  {counted(state.machines, 'machine')} in {counted(state.groups, 'group')},"
        f" {counted(state.hosts, 'host')}, {counted(state.events, 'active event')}"
    )
    if state.machines:
        say(f"  coverage: {coverage_text(state.coverage)}")
    if state.unknown_callers:
        say(
            f"  unknown callers: {state.unknown_callers:,} in the last hour; see"
            " 'forewarn caller list'"
        )
    if state.nodes:
        say(f"  metadata endpoint: on {counted(state.nodes, 'host')}; see 'forewarn host list'")
    else:
        say(f"  metadata endpoint: {', '.join(state.metadata_urls) or 'none'}")
    if state.control_node and (state.control_node.term or state.control_node.role == "follows"):
        say(f"  control node: {_control_node(state.control_node)}; see 'forewarn control list'")
    say(f"  clock: {_clock(state.clock)}")
    _section("Started", overview.started, lambda event: _started(event, now), "event list")
    _section("Next", overview.next, lambda event: _next(event, now), "event list")
    _section(
        "Waiting",
        overview.waiting,
        lambda item: f"{_name(item.event)}: {item.reason}",
        "event list",
    )
    _section("Rollouts", overview.rollouts, _rollout, "rollout list")
    total = state.problems_total
    _section("Needs attention", state.problems, _problem, "status --json", total)
    if not (overview.started or overview.next or overview.waiting or overview.rollouts):
        say("")
        say("Nothing is planned.")


def _section(
    title: str,
    items: Sequence[T],
    line: Callable[[T], str],
    command: str,
    total: int | None = None,
) -> None:
    """Print the first few items. `total`: how many there are, if `items` are not all of them."""
    if not items:
        return
    say("")
    say(title)
    for item in items[:SHOWN]:
        say(f"  {line(item)}")
    more = (len(items) if total is None else total) - SHOWN
    if more > 0:
        say(f"  and {more} more: forewarn {command}")


def _name(event: s.Event) -> str:
    return f"{event.type} {event.id[:8]} of {listing(event.machines)}"


def _started(event: s.Event, now: datetime) -> str:
    if event.started_at is None:
        return _name(event)
    return (
        f"{_name(event)}, since {time_text(event.started_at)} ({_duration(event.started_at, now)})"
    )


def _next(event: s.Event, now: datetime) -> str:
    left = _duration(now, event.not_before)
    return f"{_name(event)}, not before {time_text(event.not_before)} (in {left})"


def _rollout(rollout: r.Rollout) -> str:
    steps = f"{rollout.steps_done} of {rollout.steps_total} steps are over"
    return f"{rollout.type} {rollout.id[:8]} of {rollout.selection}: {rollout.state}, {steps}"


def _clock(clock: s.Clock) -> str:
    text = time_text(clock.now)
    if clock.virtual:
        speed = f"running at speed {clock.running_speed:g}" if clock.running_speed else "paused"
        text += f", virtual, {speed}"
    elif clock.speed != 1:
        text += f"; durations are divided by {clock.speed:g}"
    return text


def _control_node(node: s.ThisNode) -> str:
    if node.role == "leads":
        return f"{node.name}, which decides (term {node.term})"
    leader = f"follows {node.leader.name}" if node.leader else "follows; none decides"
    return f"{node.name}, which {leader} (commit {node.commit})"


def _duration(start: datetime, end: datetime) -> str:
    return in_words(round((end - start).total_seconds()) * SECOND)

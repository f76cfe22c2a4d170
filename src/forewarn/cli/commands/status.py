"""`forewarn status`: one screen about a service: what runs, what has started, what is next, what
waits and why, and what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    events = sorted(client.events(), key=lambda e: (e.not_before, e.joint, e.group, e.id))
    rollouts = [rollout for rollout in client.rollouts() if rollout.state not in OVER]
    started = [event for event in events if event.status == "Started"]
    due: list[list[s.Event]] = []
    upcoming: list[list[s.Event]] = []
    for together in _together(event for event in events if event.status == "Scheduled"):
        (due if _may_start(together, state.clock.now) else upcoming).append(together)
    reasons = [client.explain(first.id).message for first, *_ in due[:SHOWN]]
    reasons += [""] * (len(due) - len(reasons))
    return Overview(
        url=client.url,
        service=state,
        started=started,
        next=[event for together in upcoming for event in together],
        waiting=[
            Waiting(event=event, reason=reason)
            for together, reason in zip(due, reasons, strict=True)
            for event in together
        ],
        rollouts=rollouts,
    )


def _together(events: Iterable[s.Event]) -> list[list[s.Event]]:
    """Return the events that start together, in the order of the first of them."""
    found: dict[str, list[s.Event]] = {}
    for event in events:
        found.setdefault(event.joint or event.id, []).append(event)
    return [*found.values()]


def _may_start(together: Sequence[s.Event], now: datetime) -> bool:
    asked = [event for event in together if event.listed] or together
    return together[0].not_before <= now or all(event.approved for event in asked)


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
    reasons = {item.event.id: item.reason for item in overview.waiting}
    waiting = _together(item.event for item in overview.waiting)
    started, upcoming = _together(overview.started), _together(overview.next)
    _section("Started", started, lambda events: _started(events, now), "event list")
    _section("Next", upcoming, lambda events: _next(events, now), "event list")
    _section(
        "Waiting",
        waiting,
        lambda events: f"{_name(events)}: {reasons[events[0].id]}",
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


def _name(events: Sequence[s.Event]) -> str:
    """Name an event, or those that start together as one."""
    first, others = events[0], len(events) - 1
    name = f"{first.type} {first.id[:8]}"
    if not others:
        return f"{name} of {listing(first.machines)}"
    return f"{name} of host {first.host}, with {counted(others, 'other event')}"


def _started(events: Sequence[s.Event], now: datetime) -> str:
    since = events[0].started_at
    if since is None:
        return _name(events)
    return f"{_name(events)}, since {time_text(since)} ({_duration(since, now)})"


def _next(events: Sequence[s.Event], now: datetime) -> str:
    not_before = events[0].not_before
    left = _duration(now, not_before)
    return f"{_name(events)}, not before {time_text(not_before)} (in {left})"


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

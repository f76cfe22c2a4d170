"""`forewarn status`: one screen about a service: what runs, what has started, what is next, what
waits and why, and what needs attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
import typer

from forewarn.cli.output import Json, Url, coverage_text, print_json, say, service, time_text
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import core as s
from forewarn.control.schema import rollouts as r
from forewarn.core.rollouts.model import BY_ITSELF
from forewarn.core.time import SECOND
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.support.text import counted, in_words, listing

SHOWN = 5  # lines of a section; the others are counted
TOO_LONG = timedelta(minutes=10)  # after the expected end of an event
EXPIRES_SOON = timedelta(days=14)
CERTIFICATE = "the certificate of the control API, or that for nodes,"
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
    hosts: int
    started: list[s.Event]
    next: list[s.Event]
    waiting: list[Waiting]
    rollouts: list[r.Rollout]
    problems: list[str]


def status(json: Json = False, url: Url = None) -> None:
    """Summarize the service: what has started, what is next, what is waiting and why, and what
    needs attention. Exits with 1 if anything does."""
    with service(url) as client:
        overview = _read(client)
        if json:
            print_json(overview)
        else:
            _print(overview)
    if overview.problems:
        raise typer.Exit(1)


def _read(client: ControlClient) -> Overview:
    state = client.status()
    events = sorted(client.events(), key=lambda event: (event.not_before, event.id))
    hosts = client.hosts()
    rollouts = [rollout for rollout in client.rollouts() if rollout.state not in OVER]
    now = state.clock.now
    scheduled = [event for event in events if event.status == "Scheduled"]
    overdue = [event for event in scheduled if event.approved or event.not_before <= now]
    return Overview(
        url=client.url,
        service=state,
        hosts=len(hosts),
        started=[event for event in events if event.status == "Started"],
        next=[event for event in scheduled if event not in overdue],
        waiting=[
            Waiting(event=event, reason=client.explain(event.id).message if number < SHOWN else "")
            for number, event in enumerate(overdue)
        ],
        rollouts=rollouts,
        problems=list(_problems(client, state, events, hosts, rollouts)),
    )


def _problems(
    client: ControlClient,
    state: s.Status,
    events: Sequence[s.Event],
    hosts: Sequence[s.Host],
    rollouts: Sequence[r.Rollout],
) -> Iterator[str]:
    """Yield a sentence about everything that somebody should look at."""
    readiness = client.readiness()
    for part, problem in readiness.parts.items():
        if problem != "ok":
            yield f"{part}: {problem}"
    yield from readiness.warnings.values()
    for event in events:
        if event.held:
            yield f"{_name(event)}: {event.held}; see 'forewarn event explain {event.id}'"
        elif event.waits_for:
            continue  # for a limited time
        elif event.expected_end and state.clock.now - event.expected_end > TOO_LONG:
            yield (
                f"{_name(event)} was expected to end at {time_text(event.expected_end)}; see"
                f" 'forewarn event explain {event.id}'"
            )
    for rollout in rollouts:
        if rollout.paused and rollout.paused.by == BY_ITSELF:
            yield (
                f"rollout {rollout.id[:8]} has paused itself: {rollout.paused.reason}; see"
                f" 'forewarn rollout explain {rollout.id[:8]}'"
            )
    if state.not_back:
        yield (
            f"{counted(state.not_back, 'machine')} not back after an event; see 'forewarn machine"
            " list --not-back'"
        )
    yield from _expiries(state)
    for halt in client.halts():
        note = f": {halt.note}" if halt.note else ""
        yield (
            f"halted: {halt.scope}, by {halt.by} since {time_text(halt.at)}{note};"
            f" {counted(halt.events, 'scheduled event')} cannot start; to release it, run 'forewarn"
            f" halt release {halt.id[:8]}'"
        )
    for notify in client.notifications():
        if notify.state != "ok":
            yield f"notification {notify.name}: {notify.last_error}; see 'forewarn notify list'"
    for host in hosts:
        if host.health != "healthy":
            since = f" since {time_text(host.since)}" if host.since else ""
            note = f" ({host.note})" if host.note else ""
            yield f"host {host.name}: {host.health}{since}{note}"


def _expiries(state: s.Status) -> Iterator[str]:
    """Yield what has expired, or expires soon. A certificate expires by the wall clock, which is
    not that of the service if time is virtual."""
    if state.certificate_expires is not None:
        left = state.certificate_expires - to_datetime(guard.wall_us())
        if left <= timedelta():
            yield f"{CERTIFICATE} has expired or cannot be used"
        elif left <= EXPIRES_SOON:
            time = time_text(state.certificate_expires)
            yield f"{CERTIFICATE} expires at {time}"
    if state.token_expires is not None and state.token_expires - state.clock.now <= EXPIRES_SOON:
        yield f"a token expires at {time_text(state.token_expires)}; see 'forewarn token list'"


def _print(overview: Overview) -> None:
    state = overview.service
    now = state.clock.now
    say(f"forewarn {state.version} at {overview.url}")
    say(
        f"  {counted(state.machines, 'machine')} in {counted(state.groups, 'group')},"
        f" {counted(overview.hosts, 'host')}, {counted(state.events, 'active event')}"
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
    _section("Needs attention", overview.problems, str, "status --json")
    if not (overview.started or overview.next or overview.waiting or overview.rollouts):
        say("")
        say("Nothing is planned.")


def _section(title: str, items: Sequence[T], line: Callable[[T], str], command: str) -> None:
    if not items:
        return
    say("")
    say(title)
    for item in items[:SHOWN]:
        say(f"  {line(item)}")
    if len(items) > SHOWN:
        say(f"  and {len(items) - SHOWN} more: forewarn {command}")


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

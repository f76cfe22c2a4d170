"""A rollout as it goes: on a terminal a live view with bars, else one line for every change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from forewarn.cli.output import moment, say
from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.schema import rollouts as r

LOOK_EVERY = 1.0  # seconds between two looks
PATIENCE = 60  # looks in a row at a service that does not answer
SHOWN_LANES = 20  # lanes in progress that have a bar of their own
SHOWN_WAITS = 6

ENDS = {"done": 0, "aborted": 1}


def watch_on(client: ControlClient, id: str, json: bool) -> int:
    """Until it ends; the exit code."""
    try:
        if json or not sys.stdout.isatty():
            return _lines(client, id, json)
        return _live(client, id)
    except KeyboardInterrupt:
        typer.echo("stopped watching; the rollout continues", err=True)
        return 130


def _looks(client: ControlClient, id: str) -> Iterator[r.RolloutReport]:
    """Once a second, and a last time when it is over."""
    found = client.rollout(id)
    while True:
        yield found
        if found.state in ENDS:
            return
        rest()
        found = _next_look(client, found.id)


def _next_look(client: ControlClient, id: str) -> r.RolloutReport:
    """A service that is being restarted is waited for: the rollout goes on with it."""
    for missed in range(PATIENCE):
        try:
            return client.rollout(id)
        except Unreachable:
            if not missed:
                say("the service does not answer; retrying", err=True)
            rest()
    return client.rollout(id)


def rest() -> None:
    threading.Event().wait(LOOK_EVERY)


def _lines(client: ControlClient, id: str, json: bool) -> int:
    before: object = None
    found = None
    for found in _looks(client, id):
        now = (
            found.state,
            [(s.state, s.events) for s in found.steps],
            [w.message for w in found.waits],
        )
        if now != before:
            say(msgspec.json.encode(found).decode() if json else _line(found))
        before = now
    return ENDS[found.state] if found is not None else 1


def _line(found: r.RolloutReport) -> str:
    waits = "; ".join(f"{w.lane + ': ' if w.lane else ''}{w.message}" for w in found.waits)
    return f"{found.state} {found.steps_done}/{found.steps_total}" + (f"  {waits}" if waits else "")


def _live(client: ControlClient, id: str) -> int:
    from rich.live import Live

    found = None
    with Live(auto_refresh=False) as live:
        for found in _looks(client, id):
            live.update(picture(found), refresh=True)
    return ENDS[found.state] if found is not None else 1


def picture(found: r.RolloutReport) -> Any:
    """A bar for the whole, one for each lane in progress, and what is waited for."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bars = Table.grid(padding=(0, 2))

    def bar(name: str, over: int, all: int, said: str, style: str) -> None:
        made = ProgressBar(total=max(all, 1), completed=over, width=30, complete_style=style)
        bars.add_row(Text(name), made, Text(f"{over}/{all}"), Text(said))

    style = {"done": "green", "aborted": "red", "paused": "yellow", "blocked": "yellow"}
    all_over = found.steps_done, found.steps_total
    bar("all", *all_over, found.state, style.get(found.state, "cyan"))
    lanes: dict[str, list[r.Step]] = {}
    for step in found.steps:
        lanes.setdefault(step.lane, []).append(step)
    waiting = {wait.lane: wait for wait in found.waits if wait.kind != "turn"}
    moving = [name for name, steps in lanes.items() if name in waiting or _moving(steps)]
    for name in moving[:SHOWN_LANES]:
        over = sum(_over(step) for step in lanes[name])
        said = waiting[name].kind if name in waiting else ""
        bar(name, over, len(lanes[name]), said, "cyan")
    head = Text(f"{found.type} rollout {found.id} of {found.selection}")
    lines = [Text(_wait(wait), style="dim") for wait in found.waits[:SHOWN_WAITS]]
    if len(found.waits) > SHOWN_WAITS:
        lines.append(Text(f"… and {len(found.waits) - SHOWN_WAITS} more", style="dim"))
    return Group(head, bars, *lines)


def _over(step: r.Step) -> bool:
    return step.state in ("done", "nothing to do")


def _moving(steps: list[r.Step]) -> bool:
    return any(step.events for step in steps) and not all(map(_over, steps))


def _wait(wait: r.Wait) -> str:
    until = f", until {moment(wait.until)} at most" if wait.until else ""
    return (
        f"{wait.lane + ': ' if wait.lane else ''}{wait.message} (since {moment(wait.since)}{until})"
    )

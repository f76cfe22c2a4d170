"""`forewarn rollout watch`: a live view with progress bars on a terminal, otherwise a line for each
change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from forewarn.cli.output import say, time_text
from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.schema import rollouts as r

POLL_EVERY = 1.0  # seconds between two requests
MAX_FAILED_POLLS = 60  # in a row, after which the command fails
SHOWN_LANES = 20  # lanes in progress that have a bar of their own
SHOWN_WAITS = 6

ENDS = {"done": 0, "aborted": 1}  # states in which a rollout has ended, and the exit codes


def watch_rollout(client: ControlClient, id: str, json: bool) -> int:
    """Follow a rollout until it ends, and return the exit code."""
    try:
        if json or not sys.stdout.isatty():
            return _lines(client, id, json)
        return _live(client, id)
    except KeyboardInterrupt:
        typer.echo("stopped watching; the rollout continues", err=True)
        return 130


def _reports(client: ControlClient, id: str) -> Iterator[r.RolloutReport]:
    """Yield the state of a rollout once a second, and a last time when it has ended."""
    report = client.rollout(id)
    while True:
        yield report
        if report.state in ENDS:
            return
        pause()
        report = _next_report(client, report.id)


def _next_report(client: ControlClient, id: str) -> r.RolloutReport:
    """Return the state of a rollout, waiting for a service that is being restarted."""
    for failed in range(MAX_FAILED_POLLS):
        try:
            return client.rollout(id)
        except Unreachable:
            if not failed:
                say("the service does not answer; retrying", err=True)
            pause()
    return client.rollout(id)


def pause() -> None:
    threading.Event().wait(POLL_EVERY)


def _lines(client: ControlClient, id: str, json: bool) -> int:
    previous: object = None
    report = None
    for report in _reports(client, id):
        current = (
            report.state,
            [(step.state, step.events) for step in report.steps],
            [wait.message for wait in report.waits],
        )
        if current != previous:
            say(msgspec.json.encode(report).decode() if json else _line(report))
        previous = current
    return ENDS[report.state] if report is not None else 1


def _line(report: r.RolloutReport) -> str:
    waits = "; ".join(f"{w.lane + ': ' if w.lane else ''}{w.message}" for w in report.waits)
    progress = f"{report.state} {report.steps_done}/{report.steps_total}"
    return f"{progress}  {waits}" if waits else progress


def _live(client: ControlClient, id: str) -> int:
    from rich.live import Live

    report = None
    with Live(auto_refresh=False) as live:
        for report in _reports(client, id):
            live.update(picture(report), refresh=True)
    return ENDS[report.state] if report is not None else 1


def picture(report: r.RolloutReport) -> Any:
    """Return a bar for the whole rollout, one for each lane in progress, and what it waits for."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    bars = Table.grid(padding=(0, 2))

    def add_bar(name: str, done: int, total: int, state: str, style: str) -> None:
        bar = ProgressBar(total=max(total, 1), completed=done, width=30, complete_style=style)
        bars.add_row(Text(name), bar, Text(f"{done}/{total}"), Text(state))

    styles = {"done": "green", "aborted": "red", "paused": "yellow", "blocked": "yellow"}
    style = styles.get(report.state, "cyan")
    add_bar("all", report.steps_done, report.steps_total, report.state, style)
    lanes: dict[str, list[r.Step]] = {}
    for step in report.steps:
        lanes.setdefault(step.lane, []).append(step)
    waits = {wait.lane: wait for wait in report.waits if wait.kind != "turn"}
    shown = [name for name, steps in lanes.items() if name in waits or _in_progress(steps)]
    for name in shown[:SHOWN_LANES]:
        done = sum(_is_over(step) for step in lanes[name])
        state = waits[name].kind if name in waits else ""
        add_bar(name, done, len(lanes[name]), state, "cyan")
    head = Text(f"{report.type} rollout {report.id} of {report.selection}")
    lines = [Text(_wait(wait), style="dim") for wait in report.waits[:SHOWN_WAITS]]
    if len(report.waits) > SHOWN_WAITS:
        lines.append(Text(f"… and {len(report.waits) - SHOWN_WAITS} more", style="dim"))
    return Group(head, bars, *lines)


def _is_over(step: r.Step) -> bool:
    return step.state in ("done", "nothing to do")


def _in_progress(steps: list[r.Step]) -> bool:
    return any(step.events for step in steps) and not all(map(_is_over, steps))


def _wait(wait: r.Wait) -> str:
    lane = f"{wait.lane}: " if wait.lane else ""
    until = f", until {time_text(wait.until)} at most" if wait.until else ""
    return f"{lane}{wait.message} (since {time_text(wait.since)}{until})"

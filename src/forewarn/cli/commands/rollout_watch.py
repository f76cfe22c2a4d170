"""`forewarn rollout watch`: a live view with progress bars on a terminal, otherwise a line for each
change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import typer

from forewarn.cli.commands.rollout_output import wait_text
from forewarn.cli.output import say, time_text
from forewarn.control.client.client import ControlClient, Unreachable
from forewarn.control.schema import rollouts as r

POLL_EVERY = 1.0  # seconds between two requests
MAX_FAILED_POLLS = 60  # in a row, after which the command fails
SHOWN_WAITS = 10

ENDS = {
    "done": 0,
    "aborted": 1,
    "expired": 1,
}  # states in which a rollout has ended, and the exit codes


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
            report.steps_by_state,
            report.active,
            [(wait.count, wait.message) for wait in report.waits],
        )
        if current != previous:
            say(msgspec.json.encode(report).decode() if json else _line(report))
        previous = current
    return ENDS[report.state] if report is not None else 1


def _line(report: r.RolloutReport) -> str:
    waits = "; ".join(map(wait_text, report.waits))
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
    """Return a bar, the states of the steps as sums, and what the rollout waits for."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    styles = {"done": "green", "aborted": "red", "paused": "yellow", "blocked": "yellow"}
    style = styles.get(report.state, "cyan")
    done, total = report.steps_done, report.steps_total
    bar = ProgressBar(total=max(total, 1), completed=done, width=30, complete_style=style)
    line = Table.grid(padding=(0, 2))
    line.add_row(Text("all"), bar, Text(f"{done}/{total}"), Text(report.state))
    head = Text(f"{report.type} rollout {report.id} of {report.selection}")
    sums = [f"{number} {state}" for state, number in report.steps_by_state.items()]
    if report.waves > 1:
        sums.insert(0, f"wave {report.wave} of {report.waves}")
    if report.steps_failed:
        sums.append(f"{report.steps_failed} failed")
    lines = [Text(_wait(wait), style="dim") for wait in report.waits[:SHOWN_WAITS]]
    if len(report.waits) > SHOWN_WAITS:
        lines.append(Text(f"… and {len(report.waits) - SHOWN_WAITS} more", style="dim"))
    return Group(head, line, Text(", ".join(sums)), *lines)


def _wait(wait: r.Wait) -> str:
    until = f", until {time_text(wait.until)} at most" if wait.until and wait.count == 1 else ""
    return f"{wait_text(wait)} (since {time_text(wait.since)}{until})"

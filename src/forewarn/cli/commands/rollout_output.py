"""The output of `forewarn rollout`: a rollout, its steps, a plan, and what a rollout waits for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forewarn.cli.output import print_clock, print_fields, print_json, print_table, say, time_text
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import rollouts as r
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words, listing


def print_report(
    report: r.RolloutReport, json: bool, client: ControlClient, steps: bool = False
) -> None:
    """Print a rollout, and what it waits for."""
    if json:
        print_json(report)
        return
    print_fields([pair for pair in _fields(report) if pair[1]])
    if steps:
        print_table(
            ("LANE", "STEP", "STATE", "MACHINES", "NOT BEFORE", "ENDED"),
            _rows(report.steps),
            minor=("MACHINES", "ENDED", "NOT BEFORE"),
        )
    for wait in report.waits:
        say(f"waiting: {wait.lane + ': ' if wait.lane else ''}{wait.message}")
    print_clock(client)


def _fields(report: r.RolloutReport) -> list[tuple[str, str]]:
    gate = report.gate
    if report.gate_timeout is not None:
        gate += f", within {_duration(report.gate_timeout)}"
    return [
        ("rollout", report.id),
        ("type", report.type),
        ("state", f"{report.state}, {report.steps_done} of {report.steps_total} steps are over"),
        ("selection", report.selection),
        ("at once", str(report.at_once)),
        ("notice", _duration(report.notice)),
        ("windows", "; ".join(report.windows)),
        ("bake", _duration(report.bake) if report.bake else ""),
        ("gate", gate),
        ("description", report.description),
        ("started", f"by {report.by} at {time_text(report.created_at)}"),
        ("paused", _switch(report.paused)),
        ("resumed", _switch(report.resumed)),
        ("aborted", _switch(report.aborted)),
        ("ended", time_text(report.ended_at)),
    ]


def _rows(steps: Sequence[r.Step]) -> list[tuple[str, ...]]:
    return [
        (
            step.lane,
            f"host {step.host}" if step.host else f"domain {step.update_domain}",
            step.state,
            listing(step.machines),
            time_text(step.not_before),
            time_text(step.ended_at),
        )
        for step in steps
    ]


def _switch(switch: r.Switch | None) -> str:
    if switch is None:
        return ""
    reason = f": {switch.reason}" if switch.reason else ""
    return f"by {switch.by} at {time_text(switch.at)}{reason}"


def continuing_events(report: r.RolloutReport) -> list[str]:
    """Return a note about the events that a rollout does not stop when it is paused or aborted."""
    steps = [step for step in report.steps if step.state in ("announced", "started")]
    events = [id for step in steps for id in step.events]
    if not events:
        return []
    return [f"events that are announced or have started continue: {listing(events)}"]


def _duration(seconds: float) -> str:
    return in_words(round(seconds * SECOND))


def print_plan(plan: r.RolloutPlan) -> None:
    local_time = functools.partial(_local_time, plan.zone)
    say(f"{plan.type} of {plan.selection}; this is a plan, nothing has been announced")
    rows = [
        (
            step.lane,
            f"host {step.host}" if step.host else f"domain {step.update_domain}",
            listing(step.machines),
            local_time(step.announced_at),
            local_time(step.not_before),
            local_time(step.ends_at),
        )
        for step in plan.steps
    ]
    print_table(
        ("LANE", "STEP", "MACHINES", "ANNOUNCED", "NOT BEFORE", "ESTIMATED END"),
        rows,
        minor=("MACHINES", "ESTIMATED END", "ANNOUNCED", "NOT BEFORE"),
        if_empty="there is nothing to do",
    )
    if plan.done_at is not None:
        say(f"estimated end: {local_time(plan.done_at)}")
    if plan.omitted:
        say(f"and {counted(plan.omitted, 'more step')} that were not planned")
    if plan.message:
        say(f"it cannot continue: {plan.message}")


def _local_time(zone: str, time: datetime) -> str:
    """Return a time in the zone of the rollout's windows, and in UTC."""
    if zone == "UTC":
        return time_text(time)
    try:
        local = time.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # this machine lacks a zone that the service has
        return time_text(time)
    in_utc = f"{time:%H:%MZ}" if local.date() == time.date() else f"{time:%Y-%m-%d %H:%MZ}"
    return f"{local:%a %Y-%m-%d %H:%M %Z} ({in_utc})"


def print_wait(wait: Any, indent: str) -> None:
    """Print since when and until when a rollout waits for something, and what would unblock it."""
    if getattr(wait, "details", None):
        say(f"{indent}since {time_text(wait.since)}{_until(wait.until, unset='')}")
        return
    say(f"{indent}since {time_text(wait.since)}{_until(wait.until)}")
    if wait.unblocked_by:
        say(f"{indent}unblocked by {wait.unblocked_by}")


def _until(until: datetime | None, unset: str = ", without a time limit") -> str:
    return f", until {time_text(until)} at most" if until else unset

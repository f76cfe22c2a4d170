"""What `forewarn rollout` prints: a rollout, its steps, a plan, and what is waited for."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forewarn.cli.output import as_json, fields, moment, pace, say, table
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import rollouts as r
from forewarn.core.time import SECOND
from forewarn.support.text import in_words, listing


def told(found: r.RolloutReport, json: bool, client: ControlClient, steps: bool = False) -> None:
    if json:
        as_json(found)
        return
    fields([pair for pair in _facts(found) if pair[1]])
    if steps:
        table(("LANE", "STEP", "STATE", "MACHINES", "NOT BEFORE", "ENDED"), _rows(found.steps))
    for wait in found.waits:
        say(f"waiting: {wait.lane + ': ' if wait.lane else ''}{wait.message}")
    pace(client)


def _facts(found: r.RolloutReport) -> list[tuple[str, str]]:
    gate = found.gate
    if found.gate_timeout is not None:
        gate += f", within {_length(found.gate_timeout)}"
    return [
        ("rollout", found.id),
        ("type", found.type),
        ("state", f"{found.state}, {found.steps_done} of {found.steps_total} steps are over"),
        ("selection", found.selection),
        ("at once", str(found.at_once)),
        ("notice", _length(found.notice)),
        ("windows", "; ".join(found.windows)),
        ("bake", _length(found.bake) if found.bake else ""),
        ("gate", gate),
        ("description", found.description),
        ("started", f"by {found.by} at {moment(found.created_at)}"),
        ("paused", _switched(found.paused)),
        ("resumed", _switched(found.resumed)),
        ("aborted", _switched(found.aborted)),
        ("ended", moment(found.ended_at)),
    ]


def _rows(steps: Sequence[r.Step]) -> list[tuple[str, ...]]:
    return [
        (
            step.lane,
            f"host {step.host}" if step.host else f"domain {step.update_domain}",
            step.state,
            listing(step.machines),
            moment(step.not_before),
            moment(step.ended_at),
        )
        for step in steps
    ]


def _switched(switch: r.Switch | None) -> str:
    if switch is None:
        return ""
    return f"by {switch.by} at {moment(switch.at)}" + (
        f": {switch.reason}" if switch.reason else ""
    )


def going_on(found: r.RolloutReport) -> list[str]:
    events = [id for s in found.steps if s.state in ("announced", "started") for id in s.events]
    return [f"what is announced or has started goes on: {listing(events)}"] if events else []


def _length(seconds: float) -> str:
    return in_words(round(seconds * SECOND))


def show_plan(found: r.RolloutPlan) -> None:
    there = functools.partial(_there, found.zone)
    say(f"{found.type} of {found.selection}; this is a plan, nothing has been announced")
    rows = [
        (
            step.lane,
            f"host {step.host}" if step.host else f"domain {step.update_domain}",
            listing(step.machines),
            there(step.announced_at),
            there(step.not_before),
            there(step.ends_at),
        )
        for step in found.steps
    ]
    table(("LANE", "STEP", "MACHINES", "ANNOUNCED", "NOT BEFORE", "ESTIMATED END"), rows)
    if found.done_at is not None:
        say(f"estimated end: {there(found.done_at)}")
    if found.omitted:
        say(f"and {found.omitted} more steps that were not planned")
    if found.message:
        say(f"it cannot continue: {found.message}")


def _there(zone: str, time: datetime) -> str:
    """In the windows' own time, and in UTC."""
    if zone == "UTC":
        return moment(time)
    try:
        local = time.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # the service knows it, but not this machine
        return moment(time)
    return f"{local.strftime('%a %Y-%m-%d %H:%M %Z')} ({time.strftime('%H:%MZ')})"


def when_and_who(wait: Any, indent: str) -> None:
    if getattr(wait, "details", None):
        say(f"{indent}since {moment(wait.since)}{_until(wait.until, unset='')}")
        return
    say(f"{indent}since {moment(wait.since)}{_until(wait.until)}")
    if wait.unblocked_by:
        say(f"{indent}unblocked by {wait.unblocked_by}")


def _until(until: datetime | None, unset: str = ", no time is set") -> str:
    return f", until {moment(until)} at most" if until else unset

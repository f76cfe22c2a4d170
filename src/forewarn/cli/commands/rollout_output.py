"""The output of `forewarn rollout`: a rollout, its steps, a plan, and what a rollout waits for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forewarn.cli.output import print_clock, print_fields, print_json, print_table, say, time_text
from forewarn.cli.tables import table_lines
from forewarn.control.client.client import ControlClient
from forewarn.control.schema import rollouts as r
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words, in_zone, listing

SHOWN_STEPS = 20  # of a plan or rollout; one with more is shown as sums, unless all are asked for
SHOWN_HOLDS = 3  # of an event that is an example for others
SHOWN_CONFLICTS = 20  # of a plan with sums


def print_report(report: r.RolloutReport, json: bool, client: ControlClient) -> None:
    """Print a rollout as sums, and what it waits for."""
    if json:
        print_json(report)
        return
    print_fields([pair for pair in _fields(report) if pair[1]])
    for wait in report.waits:
        say(f"waiting: {wait_text(wait)}")
    print_clock(client)


def print_steps(steps: Sequence[r.Step]) -> None:
    if steps:
        print_table(
            ("NO", "LANE", "STEP", "STATE", "MACHINES", "NOT BEFORE", "ENDED"),
            _rows(steps),
            minor=("MACHINES", "ENDED", "NOT BEFORE"),
        )


def wait_text(wait: r.Wait) -> str:
    """Return what lanes wait for: of one, with its name; of several, as a sum with examples."""
    if wait.kind in ("turn", "wave", "deadline", "halt", "reach") or not wait.lanes:
        return wait.message
    if wait.count == 1:
        return f"{wait.lanes[0]}: {wait.message}"
    rest = wait.count - len(wait.lanes)
    more = f" and {rest} more" if rest else ""
    return f"{wait.count} ({', '.join(wait.lanes)}{more}): {wait.reason}"


def _fields(report: r.RolloutReport) -> list[tuple[str, str]]:
    gate = report.gate
    if report.gate_timeout is not None:
        gate += f", within {_duration(report.gate_timeout)}"
    return [
        ("rollout", report.id),
        ("type", report.type),
        ("state", f"{report.state}, {report.steps_done} of {report.steps_total} steps are over"),
        ("steps", ", ".join(f"{n} {state}" for state, n in report.steps_by_state.items())),
        ("failed", f"{report.steps_failed}" if report.steps_failed else ""),
        ("wave", f"{report.wave} of {report.waves}" if report.waves > 1 else ""),
        ("selection", report.selection),
        ("size", _size(report)),
        ("work by", "the driver" if report.work_by == "driver" else ""),
        ("at once", str(report.at_once)),
        ("notice", _duration(report.notice)),
        ("windows", "; ".join(report.windows)),
        ("standing windows", "ignored, by an operator" if report.ignore_windows else ""),
        ("ends in window", "yes" if report.must_end_in_window else ""),
        ("deadline", time_text(report.deadline)),
        ("max failures", "" if report.max_failures is None else str(report.max_failures)),
        ("bake", _duration(report.bake) if report.bake else ""),
        ("gate", gate),
        ("description", report.description),
        ("ticket", report.ticket),
        ("started", f"by {report.by} at {time_text(report.created_at)}"),
        ("paused", _switch(report.paused)),
        ("resumed", _switch(report.resumed)),
        ("aborted", _switch(report.aborted)),
        ("expected end", time_text(report.expected_end)),
        ("ended", time_text(report.ended_at)),
    ]


def _rows(steps: Sequence[r.Step]) -> list[tuple[str, ...]]:
    return [
        (
            str(step.number),
            step.lane,
            _step_text(step),
            step.state + (", failed" if step.failed else ""),
            listing(step.machines),
            time_text(step.not_before),
            time_text(step.ended_at),
        )
        for step in steps
    ]


def _step_text(step: r.Step | r.Planned) -> str:
    domain = "" if step.update_domain is None else f"domain {step.update_domain}"
    host = f"host {step.host}" if step.host else ""
    action = "" if step.action == "maintenance" else step.action
    return ", ".join(part for part in (host, domain, action) if part)


def _size(sums: r.Rollout | r.RolloutPlan) -> str:
    parts = ((sums.machines, "machine"), (sums.groups, "group"), (sums.hosts, "host"))
    return ", ".join(counted(number, noun) for number, noun in parts)


def _switch(switch: r.Switch | None) -> str:
    if switch is None:
        return ""
    reason = f": {switch.reason}" if switch.reason else ""
    return f"by {switch.by} at {time_text(switch.at)}{reason}"


def continuing_events(report: r.RolloutReport) -> list[str]:
    """Return a note about the events that a rollout does not stop when it is paused or aborted."""
    if not report.active:
        return []
    return [f"events that are announced or have started continue: {listing(report.active)}"]


def _duration(seconds: float) -> str:
    return in_words(round(seconds * SECOND))


def print_plan(plan: r.RolloutPlan, every: bool) -> None:
    """Print a plan as sums, with its steps if there are few of them or all were asked for."""
    local_time = functools.partial(_local_time, plan.zone)
    say(f"{plan.type} of {plan.selection}; this is a plan, nothing has been announced")
    skipped = f", {plan.steps_skipped} skipped" if plan.steps_skipped else ""
    pairs = [
        ("size", _size(plan)),
        ("steps", f"{plan.steps_total}{skipped}"),
        ("waves", ", ".join(map(str, plan.waves)) if len(plan.waves) > 1 else ""),
        ("pauses", f"{plan.pauses}; it is assumed to be resumed at once" if plan.pauses else ""),
    ]
    if plan.first is not None and plan.last is not None:
        pairs += [
            ("first step", _planned_text(plan.first, local_time)),
            ("last step", _planned_text(plan.last, local_time)),
        ]
    print_fields([pair for pair in pairs if pair[1]])
    shown = every or plan.steps_total <= SHOWN_STEPS
    rows = [
        (
            str(step.number),
            step.lane,
            _step_text(step),
            listing([_going(name, step.targets) for name in step.machines]),
            local_time(step.announced_at),
            local_time(step.not_before),
            local_time(step.ends_at),
        )
        for step in plan.steps
    ]
    if shown:
        print_table(
            ("NO", "LANE", "STEP", "MACHINES", "ANNOUNCED", "NOT BEFORE", "ESTIMATED END"),
            rows,
            minor=("MACHINES", "ESTIMATED END", "ANNOUNCED", "NOT BEFORE"),
            if_empty="there is nothing to do",
        )
    print_conflicts(plan.conflicts if every else plan.conflicts[:SHOWN_CONFLICTS])
    if len(plan.conflicts) > SHOWN_CONFLICTS and not every:
        say(f"and {counted(len(plan.conflicts) - SHOWN_CONFLICTS, 'more conflict')}")
    if plan.unreachable:
        say(
            f"cannot be reached now, because their nodes are cut off: {listing(plan.unreachable)};"
            " steps with machines there are announced when they can be reached"
        )
    if plan.nowhere:
        say(f"no host has room now for {listing(plan.nowhere)}")
    if plan.done_at is not None:
        say(f"estimated end: {local_time(plan.done_at)}")
    if plan.message:
        say(f"it cannot continue: {plan.message}")
    if plan.problem:
        say(f"it would be refused: {plan.problem}")
    if not shown or (len(plan.conflicts) > SHOWN_CONFLICTS and not every):
        say("to see all of it, pass --all")


def _going(machine: str, targets: dict[str, str]) -> str:
    return f"{machine} → {targets[machine]}" if targets.get(machine) else machine


def _planned_text(step: r.Planned, local_time: Callable[[datetime], str]) -> str:
    return (
        f"{step.lane}, {counted(len(step.machines), 'machine')}: announced"
        f" {local_time(step.announced_at)}, not before {local_time(step.not_before)}"
    )


def print_conflicts(conflicts: Sequence[r.Conflict], *, err: bool = False) -> None:
    """Print hosts with machines of several update domains of one group, as a table."""
    if not conflicts:
        return
    rows = [
        (
            conflict.host,
            conflict.group,
            "; ".join(f"{domain}: {listing(ms)}" for domain, ms in conflict.machines.items()),
        )
        for conflict in conflicts
    ]
    columns = ("CONFLICT ON HOST", "GROUP", "MACHINES BY UPDATE DOMAIN")
    if err:
        for line in table_lines(columns, rows):
            say(line, err=True)
    else:
        print_table(columns, rows, minor=("MACHINES BY UPDATE DOMAIN",))


def _local_time(zone: str, time: datetime) -> str:
    """Return a time in the zone of the rollout's windows, and in UTC."""
    if zone == "UTC":
        return time_text(time)
    try:
        return in_zone(time, ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):  # this machine lacks a zone that the service has
        return time_text(time)


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

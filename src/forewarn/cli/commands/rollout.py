"""`forewarn rollout`: plan, start, list, show, watch, pause, resume, skip, abort, explain."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import WOULD_IGNORE_WINDOWS
from forewarn.cli.commands.rollout_output import (
    SHOWN_HOLDS,
    SHOWN_STEPS,
    continuing_events,
    print_conflicts,
    print_plan,
    print_report,
    print_steps,
    print_wait,
    wait_text,
)
from forewarn.cli.commands.rollout_watch import watch_rollout
from forewarn.cli.confirm import Yes, confirm
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    fail,
    print_clock,
    print_json,
    print_notes,
    refusal,
    say,
    service,
)
from forewarn.cli.plain import add_commands, takes
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.operations import rollouts as operations
from forewarn.control.schema import rollouts as r
from forewarn.core.refusal import Hint
from forewarn.support.text import counted

app = typer.Typer(no_args_is_help=True)


def _id(text: str) -> str:
    if not text.strip():
        raise typer.BadParameter("pass the ID of a rollout, or a prefix of it")
    return text


Id = Annotated[
    str,
    typer.Argument(
        callback=_id,
        help="ID of the rollout, or a prefix of it.",
        autocompletion=completion.rollouts,
    ),
]
All = Annotated[bool, typer.Option("--all", help="Show all steps.")]
OnlyStep = Annotated[
    int | None, typer.Option("--step", help="Only the step with this number.", min=1)
]


def _request(fields: Fields) -> r.RolloutRequest:
    if not fields.keys() & {"groups", "labels", "machines", "hosts", "host_labels"}:
        raise typer.BadParameter("pass --group, --label, --machine, --host or --host-label")
    return r.RolloutRequest(**fields)


@app.command()
@takes(operations.PLAN_ROLLOUT, without=("lane", "steps"))
def plan(
    fields: Fields,
    all_: All = False,
    lane: Annotated[
        str | None,
        typer.Option(
            "--lane", help="Show the steps of this host or group.", autocompletion=completion.hosts
        ),
    ] = None,
    step: OnlyStep = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Show what a rollout would do and when it would end, without starting anything."""
    request = _request(fields)
    with service(url) as client:
        every = all_ or lane is not None or step is not None
        forecast = client.plan_rollout(
            request, lane=lane, steps=None if every or json else SHOWN_STEPS + 1
        )
        if step is not None:
            forecast.steps = [planned for planned in forecast.steps if planned.number == step]
        if json:
            print_json(forecast)
            return
        print_plan(forecast, every)
        print_clock(client)


@app.command()
@takes(operations.START_ROLLOUT)
def start(fields: Fields, yes: Yes = False, json: Json = False, url: Url = None) -> None:
    """Start a rollout over groups, labels or hosts, one update domain of a group at a time."""
    request = _request(fields)
    if request.ignore_windows and not yes:
        confirm(f"the rollout {WOULD_IGNORE_WINDOWS}")
    with service(url) as client:
        try:
            report = client.start_rollout(request)
        except ControlError as error:
            hint = error.problem.hint if error.problem is not None else None
            if hint is not None and hint.kind == Hint.CONFLICTS.value:
                print_conflicts(client.plan_rollout(request, steps=0).conflicts, err=True)
                fail(refusal(error))  # without its details, which are the table
            raise
        print_report(report, json, client)


ROLLOUTS = Table(
    {
        "ROLLOUT": "id",
        "TYPE": "type",
        "STATE": "state",
        "STEPS DONE": lambda rollout: f"{rollout.steps_done} of {rollout.steps_total}",
        "SELECTION": "selection",
        "TICKET": "ticket",
        "STARTED": "created_at",
        "ENDED": "ended_at",
    },
    minor=("TICKET", "ENDED", "SELECTION", "STARTED", "STEPS DONE", "TYPE"),
    if_empty="there are no rollouts",
    if_filtered="no rollout matches",
)


@app.command()
@takes(operations.LIST_ROLLOUT_STEPS)
def show(
    id: Id,
    fields: Fields,
    all_: All = False,
    step: OnlyStep = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Show one rollout: its settings, the states of its steps, and what it waits for."""
    with service(url) as client:
        narrowed = all_ or bool(fields or step)
        report = client.rollout(id, expected_end=not narrowed)
        steps: list[r.Step] = []
        if narrowed or report.steps_total <= SHOWN_STEPS:
            steps = list(client.pages(operations.LIST_ROLLOUT_STEPS, report.id, **fields))
            steps = [found for found in steps if step in (None, found.number)]
        if narrowed and not steps:
            fail("the rollout has no such step")
        if json:
            print_json(steps if narrowed else report)
            return
        if not narrowed:
            print_report(report, json, client)
        print_steps(steps)
        if not steps:
            say(f"to see its steps, run: forewarn rollout show {report.id[:8]} --all")


@app.command()
def watch(id: Id, json: Json = False, url: Url = None) -> None:
    """Follow a rollout until it ends. Exits with 0 if it is done, and with 1 otherwise."""
    with service(url) as client:
        raise typer.Exit(watch_rollout(client, id, json))


@app.command()
@takes(operations.EXPLAIN_ROLLOUT)
def explain(id: Id, fields: Fields, json: Json = False, url: Url = None) -> None:
    """Explain what a rollout is waiting for, until when at most, and what would unblock it."""
    with service(url) as client:
        explanation = client.call(operations.EXPLAIN_ROLLOUT, id, **fields)
        narrowed = bool(fields)
        if json:
            print_json(explanation)
            return
        rollout = explanation.rollout
        say(f"{rollout.type} rollout {rollout.id} of {rollout.selection}: {explanation.message}")
        for wait in explanation.waits:
            say(f"- {wait.kind}: {wait_text(wait)}")
            print_wait(wait, "  ")
            for detail in wait.details if narrowed else wait.details[:1]:
                say(f"  event {detail.event}: {detail.message}")
                for hold in detail.holds if narrowed else detail.holds[:SHOWN_HOLDS]:
                    say(f"    - {hold.kind}: {hold.message}")
                    print_wait(hold, "      ")
        if client.readiness().parts.get("state", "ok") != "ok":
            say("the state cannot be written: nothing continues, and no command is carried out")
        elif any(wait.kind in ("paused", "cancelled") for wait in explanation.waits):
            say(f"to resume it, run: forewarn rollout resume {rollout.id[:8]}")
        print_clock(client)


def _abortion(client: ControlClient, id: str, _request: r.SwitchRequest) -> str:
    rollout = client.rollout(id)
    left = counted(rollout.steps_total - rollout.steps_done, "step")
    return (
        f"rollout {rollout.id[:8]} ({rollout.type}, {rollout.selection}) would be aborted"
        f" with {left} to go, and cannot be resumed"
    )


def _print_report(report: r.RolloutReport, client: ControlClient) -> None:
    print_report(report, False, client)


def _print_stopped(report: r.RolloutReport, client: ControlClient) -> None:
    print_report(report, False, client)
    print_notes(continuing_events(report))


add_commands(
    app,
    "rollout",
    operations,
    prints={
        operations.LIST_ROLLOUTS: ROLLOUTS,
        operations.PAUSE_ROLLOUT: _print_stopped,
        operations.RESUME_ROLLOUT: _print_report,
        operations.SKIP_ROLLOUT_STEPS: _print_report,
        operations.ABORT_ROLLOUT: _print_stopped,
    },
    concerns={operations.ABORT_ROLLOUT: _abortion},
)

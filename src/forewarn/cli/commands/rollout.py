"""`forewarn rollout`: plan, start, list, show, watch, pause, resume, abort, explain."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import Annotated, Any

import msgspec
import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import type_names
from forewarn.cli.commands.rollout_output import (
    continuing_events,
    print_plan,
    print_report,
    print_wait,
)
from forewarn.cli.commands.rollout_watch import watch_rollout
from forewarn.cli.output import (
    Json,
    Url,
    parsed,
    print_clock,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.schema import rollouts as r
from forewarn.core.time import SECOND
from forewarn.support.text import parse_duration

app = typer.Typer(no_args_is_help=True)
ROLLOUT_TYPES = type_names(lambda traits: not traits.deletes)


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
Reason = Annotated[str, typer.Option("--reason", help="Reason, for the history.")]
Type = Annotated[str, typer.Option("--type", help=f"Event type: {ROLLOUT_TYPES}.")]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", help="Group. Repeatable.", autocompletion=completion.groups),
]
Label = Annotated[
    list[str] | None,
    typer.Option("--label", help="Machines with these labels, e.g. tier=web,!canary. Repeatable."),
]
Host = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        help="Host, or a pattern such as rack1-*. Repeatable.",
        autocompletion=completion.hosts,
    ),
]
Notice = Annotated[
    str | None, typer.Option(help="Notice of each step. Default: as documented for the event type.")
]
ShortNotice = Annotated[
    bool,
    typer.Option(
        "--short-notice", help="Allow less notice than is documented for this event type."
    ),
]
AtOnce = Annotated[int, typer.Option(help="Number of groups (or hosts) at a time.", min=1)]
Windows = Annotated[
    list[str] | None,
    typer.Option(
        "--window",
        help="Window in which steps may start: 'sat,sun 22:00-04:00 Europe/Berlin',"
        " '2nd tue 02:00-06:00'. Repeatable.",
    ),
]
GateHttp = Annotated[str, typer.Option(help="URL that must answer 2xx after each step.")]
GateCommand = Annotated[
    str, typer.Option(help="Gate command from the service's settings that must exit with 0.")
]
GateTimeout = Annotated[
    str | None, typer.Option(help="Time that the gate may take before the rollout is paused.")
]
Bake = Annotated[str, typer.Option(help="Time to wait after each step.")]
Description = Annotated[str, typer.Option(help="Description in the machines' document.")]
Duration = Annotated[
    int, typer.Option(help="Duration of the impact in seconds; 0: none, -1: unknown.")
]
Lasts = Annotated[str | None, typer.Option(help="Assumed time that a step's event stays Started.")]


def _request(
    type: Type,
    group: Group = None,
    label: Label = None,
    host: Host = None,
    notice: Notice = None,
    short_notice: ShortNotice = False,
    at_once: AtOnce = 1,
    window: Windows = None,
    gate_http: GateHttp = "",
    gate_command: GateCommand = "",
    gate_timeout: GateTimeout = None,
    bake: Bake = "0s",
    description: Description = "",
    duration: Duration = -1,
) -> r.RolloutRequest:
    if not (group or label or host):
        raise typer.BadParameter("pass --group, --label or --host")
    return r.RolloutRequest(
        type=type,
        groups=group or [],
        labels=label or [],
        hosts=host or [],
        notice=_seconds("--notice", notice),
        short_notice=short_notice,
        description=description,
        duration=duration,
        at_once=at_once,
        windows=window or [],
        gate_http=gate_http,
        gate_command=gate_command,
        gate_timeout=_seconds("--gate-timeout", gate_timeout),
        bake=_seconds("--bake", bake) or 0,
    )


def _takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a rollout; it is called with the request they describe."""
    shared = signature(_request, eval_str=True).parameters
    own = dict(signature(command, eval_str=True).parameters)
    del own["request"]

    @wraps(command)
    def call(**values: Any) -> None:
        request = _request(**{name: values.pop(name) for name in shared})
        command(request, **values)

    parameters = [*shared.values(), *own.values()]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


@app.command()
@_takes_request
def plan(
    request: r.RolloutRequest, lasts: Lasts = None, json: Json = False, url: Url = None
) -> None:
    """Show when each step would be announced, start and end, without starting anything."""
    request = msgspec.structs.replace(request, lasts=_seconds("--lasts", lasts))
    with service(url) as client:
        forecast = client.plan_rollout(request)
        if json:
            print_json(forecast)
            return
        print_plan(forecast)
        print_clock(client)


@app.command()
@_takes_request
def start(request: r.RolloutRequest, json: Json = False, url: Url = None) -> None:
    """Start a rollout over groups, labels or hosts, one update domain of a group at a time."""
    with service(url) as client:
        print_report(client.start_rollout(request), json, client)


@app.command("list")
def list_(json: Json = False, url: Url = None) -> None:
    """List all rollouts: first those in progress, then those that are over."""
    with service(url) as client:
        rollouts = client.rollouts()
        if json:
            print_json(rollouts)
            return
        print_table(
            ("ROLLOUT", "TYPE", "STATE", "STEPS DONE", "SELECTION", "STARTED", "ENDED"),
            [
                (
                    rollout.id,
                    rollout.type,
                    rollout.state,
                    f"{rollout.steps_done} of {rollout.steps_total}",
                    rollout.selection,
                    time_text(rollout.created_at),
                    time_text(rollout.ended_at),
                )
                for rollout in rollouts
            ],
            minor=("ENDED", "SELECTION", "STARTED", "STEPS DONE", "TYPE"),
            if_empty="there are no rollouts",
        )
        print_clock(client)


@app.command()
def show(id: Id, json: Json = False, url: Url = None) -> None:
    """Show one rollout, its plan and the state of each step."""
    with service(url) as client:
        print_report(client.rollout(id), json, client, steps=True)


@app.command()
def watch(id: Id, json: Json = False, url: Url = None) -> None:
    """Follow a rollout until it ends. Exits with 0 if it is done, with 1 if it was aborted."""
    with service(url) as client:
        raise typer.Exit(watch_rollout(client, id, json))


@app.command()
def pause(id: Id, reason: Reason = "", json: Json = False, url: Url = None) -> None:
    """Pause a rollout: no further step is announced. Events that exist are carried out."""
    with service(url) as client:
        report = client.on_rollout("pause", id, r.SwitchRequest(reason=reason))
        print_report(report, json, client)
        if not json:
            print_notes(continuing_events(report))


@app.command()
def resume(id: Id, json: Json = False, url: Url = None) -> None:
    """Resume a paused rollout, and announce again what was cancelled."""
    with service(url) as client:
        print_report(client.on_rollout("resume", id), json, client)


@app.command()
def abort(id: Id, reason: Reason = "", json: Json = False, url: Url = None) -> None:
    """Abort a rollout: cancel what has not started. Events that have started are carried out."""
    with service(url) as client:
        report = client.on_rollout("abort", id, r.SwitchRequest(reason=reason))
        print_report(report, json, client)
        if not json:
            print_notes(continuing_events(report))


@app.command()
def explain(id: Id, json: Json = False, url: Url = None) -> None:
    """Explain what a rollout is waiting for, until when at most, and what would unblock it."""
    with service(url) as client:
        explanation = client.explain_rollout(id)
        if json:
            print_json(explanation)
            return
        rollout = explanation.rollout
        say(f"{rollout.type} rollout {rollout.id} of {rollout.selection}: {explanation.message}")
        for wait in explanation.waits:
            where = f"{wait.lane}: " if wait.lane and wait.kind != "turn" else ""
            say(f"- {wait.kind}: {where}{wait.message}")
            print_wait(wait, "  ")
            for detail in wait.details:
                say(f"  event {detail.event}: {detail.message}")
                for hold in detail.holds:
                    say(f"    - {hold.kind}: {hold.message}")
                    print_wait(hold, "      ")
        if any(wait.kind in ("paused", "cancelled") for wait in explanation.waits):
            say(f"to resume it, run: forewarn rollout resume {rollout.id[:8]}")
        print_clock(client)


def _seconds(option: str, text: str | None) -> float | None:
    duration = parsed(parse_duration, text, option)
    return None if duration is None else duration / SECOND

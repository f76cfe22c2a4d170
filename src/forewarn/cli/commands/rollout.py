"""`forewarn rollout`: plan, start, list, show, watch, pause, resume, skip, abort, explain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import WOULD_IGNORE_WINDOWS, Ticket, type_names
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
from forewarn.cli.confirm import Yes, accepts_yes, confirm
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    parsed,
    parsed_seconds,
    print_clock,
    print_json,
    print_notes,
    print_table,
    refusal,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands
from forewarn.cli.values import parse_time
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.operations import rollouts as operations
from forewarn.control.schema import rollouts as r
from forewarn.core.refusal import Hint
from forewarn.core.rollouts.model import EVACUATE_WORK_RETURN, LIVE_MIGRATION, Conflicts, WorkBy
from forewarn.core.rollouts.progress import StepState
from forewarn.support.text import counted, either_of

app = typer.Typer(no_args_is_help=True)
ROLLOUT_TYPES = type_names(lambda traits: not traits.deletes)
CONFLICTS = [handling.value for handling in Conflicts]
WORKERS = [by.value for by in WorkBy]
PAUSES = ["nothing", "canary", "waves"]
STEP_STATES = [state.value for state in StepState]


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
Type = Annotated[
    str,
    typer.Option(
        "--type",
        help=f"Event type ({either_of(ROLLOUT_TYPES)}), {LIVE_MIGRATION} or"
        f" {EVACUATE_WORK_RETURN}.",
        autocompletion=completion.one_of(*ROLLOUT_TYPES, LIVE_MIGRATION, EVACUATE_WORK_RETURN),
    ),
]


class _Selector(NamedTuple):
    """A kind of things by which a rollout is selected, or by which things are left out of it."""

    help: str
    exclude_help: str
    complete: Callable[..., Any]


# By the name of the option; `--exclude-…` leaves out. In the API, the names are in the plural.
SELECTORS = {
    "group": _Selector("Group. Repeatable.", "Leave out this group.", completion.groups),
    "label": _Selector(
        "Machines with these labels, e.g. tier=web,!canary. Repeatable.",
        "Leave out machines with these labels.",
        completion.machine_labels,
    ),
    "machine": _Selector(
        "Machine, or a pattern such as web_*. Repeatable.",
        "Leave out this machine, or a pattern.",
        completion.machines,
    ),
    "host": _Selector(
        "Host, or a pattern such as rack1-*. Repeatable.",
        "Leave out this host, or a pattern.",
        completion.hosts,
    ),
    "host_label": _Selector(
        "Hosts with these labels, e.g. row=3. Repeatable.",
        "Leave out hosts with these labels.",
        completion.host_labels,
    ),
}


def _selection_options() -> Iterator[Parameter]:
    for exclude in ("", "exclude_"):
        for name, selector in SELECTORS.items():
            option = typer.Option(
                f"--{exclude}{name}".replace("_", "-"),
                help=selector.exclude_help if exclude else selector.help,
                autocompletion=selector.complete,
            )
            yield Parameter(
                exclude + name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=None,
                annotation=Annotated[list[str] | None, option],
            )


ConflictsOption = Annotated[
    str,
    typer.Option(
        "--conflicts",
        help="For hosts with machines of several update domains of one group:"
        f" {either_of(CONFLICTS)}.",
        autocompletion=completion.one_of(*CONFLICTS),
    ),
]
WorkByOption = Annotated[
    str,
    typer.Option(
        "--work-by",
        help=f"Who does the work of an {EVACUATE_WORK_RETURN}: {either_of(WORKERS)}.",
        autocompletion=completion.one_of(*WORKERS),
    ),
]
OrderBy = Annotated[
    list[str] | None,
    typer.Option(
        "--order-by", help="Order hosts or groups by the values of this label. Repeatable."
    ),
]
Canary = Annotated[
    list[str] | None,
    typer.Option(
        "--canary", help="Host or group that goes first, or a number of them. Repeatable."
    ),
]
Waves = Annotated[
    str | None,
    typer.Option(
        "--waves", help="How many hosts or groups are done after each wave, e.g. 1,5%,25%,100%."
    ),
]
PauseAfterOption = Annotated[
    str,
    typer.Option(
        "--pause-after",
        help=f"When to pause until an operator resumes it: after {either_of(PAUSES)}.",
        autocompletion=completion.one_of(*PAUSES),
    ),
]
MaxFailures = Annotated[
    int | None,
    typer.Option("--max-failures", help="Pause if more steps than this have failed.", min=0),
]
IgnoreStandingWindows = Annotated[
    bool,
    typer.Option(
        "--ignore-windows",
        help="Ignore the windows and blackouts of groups and maintenance configurations.",
    ),
]
AllowOverlap = Annotated[
    bool,
    typer.Option(
        "--allow-overlap",
        help="Start it although another rollout is still to do the same for some of its hosts or"
        " machines.",
    ),
]
MustEnd = Annotated[
    bool,
    typer.Option(
        "--must-end-in-window",
        help="Do not start a step that would not end within its window. Needs --lasts.",
    ),
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", help="Start nothing after this time, e.g. 2030-01-31T18:00:00Z."),
]
All = Annotated[bool, typer.Option("--all", help="Show all steps.")]
OnlyHost = Annotated[
    str | None,
    typer.Option("--host", help="Only this host.", autocompletion=completion.hosts),
]
OnlyGroup = Annotated[
    str | None,
    typer.Option("--group", help="Only this group.", autocompletion=completion.groups),
]
OnlyState = Annotated[
    str | None,
    typer.Option(
        "--state",
        help=f"Only steps in this state: {either_of(STEP_STATES)}.",
        autocompletion=completion.one_of(*STEP_STATES),
    ),
]
OnlyStep = Annotated[
    int | None, typer.Option("--step", help="Only the step with this number.", min=1)
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
Duration = Annotated[int, typer.Option(help="Duration of the impact; 0 for none, -1 for unknown.")]
Lasts = Annotated[str | None, typer.Option(help="How long a step is expected to take, e.g. 10m.")]


def _request(
    selection: dict[str, Any],
    type: Type,
    conflicts: ConflictsOption = "refuse",
    work_by: WorkByOption = "operator",
    order_by: OrderBy = None,
    canary: Canary = None,
    waves: Waves = None,
    pause_after: PauseAfterOption = "nothing",
    max_failures: MaxFailures = None,
    notice: Notice = None,
    short_notice: ShortNotice = False,
    at_once: AtOnce = 1,
    window: Windows = None,
    ignore_windows: IgnoreStandingWindows = False,
    allow_overlap: AllowOverlap = False,
    must_end_in_window: MustEnd = False,
    deadline: Deadline = None,
    lasts: Lasts = None,
    gate_http: GateHttp = "",
    gate_command: GateCommand = "",
    gate_timeout: GateTimeout = None,
    bake: Bake = "0s",
    description: Description = "",
    duration: Duration = -1,
    ticket: Ticket = "",
) -> r.RolloutRequest:
    if not any(selection[f"{name}s"] for name in SELECTORS):
        raise typer.BadParameter("pass --group, --label, --machine, --host or --host-label")
    return r.RolloutRequest(
        **selection,
        type=type,
        conflicts=conflicts,
        work_by=work_by,
        order_by=order_by or [],
        canary=canary or [],
        waves=[size for size in (waves or "").split(",") if size],
        pause_after=pause_after,
        max_failures=max_failures,
        ignore_windows=ignore_windows,
        allow_overlap=allow_overlap,
        must_end_in_window=must_end_in_window,
        deadline=parsed(parse_time, deadline, "--deadline"),
        lasts=parsed_seconds("--lasts", lasts),
        notice=parsed_seconds("--notice", notice),
        short_notice=short_notice,
        description=description,
        duration=duration,
        ticket=ticket,
        at_once=at_once,
        windows=window or [],
        gate_http=gate_http,
        gate_command=gate_command,
        gate_timeout=parsed_seconds("--gate-timeout", gate_timeout),
        bake=parsed_seconds("--bake", bake) or 0,
    )


def _takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a rollout; it is called with the request they describe."""
    shared = dict(signature(_request, eval_str=True).parameters)
    del shared["selection"]
    selection = list(_selection_options())
    own = dict(signature(command, eval_str=True).parameters)
    del own["request"]

    @wraps(command)
    def call(**values: Any) -> None:
        selected = {f"{option.name}s": values.pop(option.name) or [] for option in selection}
        request = _request(selected, **{name: values.pop(name) for name in shared})
        command(request, **values)

    parameters = [shared["type"], *selection, *list(shared.values())[1:], *own.values()]
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


@app.command()
@_takes_request
def plan(
    request: r.RolloutRequest,
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
@_takes_request
def start(request: r.RolloutRequest, yes: Yes = False, json: Json = False, url: Url = None) -> None:
    """Start a rollout over groups, labels or hosts, one update domain of a group at a time."""
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


@app.command("list")
def list_(
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only rollouts in this state.",
            autocompletion=completion.rollout_states,
        ),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all rollouts: first those in progress, then those that are over."""
    with service(url) as client:
        rollouts = client.rollouts(state=state)
        if json:
            print_json(rollouts)
            return
        print_table(
            ("ROLLOUT", "TYPE", "STATE", "STEPS DONE", "SELECTION", "TICKET", "STARTED", "ENDED"),
            [
                (
                    rollout.id,
                    rollout.type,
                    rollout.state,
                    f"{rollout.steps_done} of {rollout.steps_total}",
                    rollout.selection,
                    rollout.ticket,
                    time_text(rollout.created_at),
                    time_text(rollout.ended_at),
                )
                for rollout in rollouts
            ],
            minor=("TICKET", "ENDED", "SELECTION", "STARTED", "STEPS DONE", "TYPE"),
            if_empty="no rollout matches" if state else "there are no rollouts",
        )
        print_clock(client)


@app.command()
def show(
    id: Id,
    all_: All = False,
    host: OnlyHost = None,
    group: OnlyGroup = None,
    state: OnlyState = None,
    step: OnlyStep = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Show one rollout: its settings, the states of its steps, and what it waits for."""
    with service(url) as client:
        narrowed = all_ or bool(host or group or state or step)
        report = client.rollout(id, expected_end=not narrowed)
        steps: list[r.Step] = []
        if narrowed or report.steps_total <= SHOWN_STEPS:
            steps = list(client.rollout_steps(report.id, group=group, host=host, state=state))
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
@accepts_yes
def skip(
    id: Id,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Skip this host. Repeatable.", autocompletion=completion.hosts),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", help="Skip this group. Repeatable.", autocompletion=completion.groups
        ),
    ] = None,
    step: Annotated[
        list[int] | None,
        typer.Option("--step", help="Skip the step with this number. Repeatable.", min=1),
    ] = None,
    reason: Reason = "",
    json: Json = False,
    url: Url = None,
) -> None:
    """Skip steps that have not started, and withdraw events already announced for them."""
    if not (host or group or step):
        raise typer.BadParameter("pass --host, --group or --step")
    lanes = [*(host or []), *(group or [])]
    with service(url) as client:
        request = r.SkipRequest(lanes=lanes, steps=step or [], reason=reason)
        print_report(client.skip_rollout_steps(id, request), json, client)


@app.command()
def explain(
    id: Id, host: OnlyHost = None, group: OnlyGroup = None, json: Json = False, url: Url = None
) -> None:
    """Explain what a rollout is waiting for, until when at most, and what would unblock it."""
    with service(url) as client:
        explanation = client.explain_rollout(id, group=group, host=host)
        narrowed = bool(group or host)
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


def _print_resumed(report: r.RolloutReport, client: ControlClient) -> None:
    print_report(report, False, client)


def _print_stopped(report: r.RolloutReport, client: ControlClient) -> None:
    print_report(report, False, client)
    print_notes(continuing_events(report))


add_commands(
    app,
    "rollout",
    operations,
    prints={
        operations.PAUSE_ROLLOUT: _print_stopped,
        operations.RESUME_ROLLOUT: _print_resumed,
        operations.ABORT_ROLLOUT: _print_stopped,
    },
    concerns={operations.ABORT_ROLLOUT: _abortion},
)

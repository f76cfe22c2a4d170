"""`forewarn fault`: add, list and clear injected faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    parsed_seconds,
    print_fields,
    print_json,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.schema import faults as f
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words

app = typer.Typer(no_args_is_help=True)


@app.command()
@accepts_yes
def add(
    kind: Annotated[
        str,
        typer.Argument(
            help="Kind of fault; see 'forewarn fault kinds'.", autocompletion=completion.fault_kinds
        ),
    ],
    machine: Annotated[
        list[str] | None,
        typer.Option(help="Only for this machine. Repeatable.", autocompletion=completion.machines),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Only for this group. Repeatable.", autocompletion=completion.groups),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="Only for this method: GET or POST.",
            autocompletion=completion.one_of("GET", "POST"),
        ),
    ] = "",
    times: Annotated[
        int | None,
        typer.Option(help="Number of requests or events. Default: until the fault is cleared."),
    ] = None,
    after: Annotated[int, typer.Option(help="Number of requests or events to skip first.")] = 0,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Start after this time on the service's clock, e.g. 5m."),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", help="Stay active for this long on the service's clock, e.g. 30s."),
    ] = None,
    probability: Annotated[
        float, typer.Option(help="Probability for each request or event, e.g. 0.1.")
    ] = 1.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random numbers, for reproducible faults.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Number of seconds; for the kinds slow, stalled, vanish and short-notice."
        ),
    ] = None,
    status: Annotated[
        int | None, typer.Option(help="Status code from 500 to 599; for the kind error.")
    ] = None,
    body: Annotated[
        Path | None,
        typer.Option(help="Response body, from a file; for the kinds error and plain."),
    ] = None,
    takes_effect: Annotated[
        bool | None,
        typer.Option(
            "--takes-effect/--no-effect",
            help="Whether an approval whose response is faulty takes effect.",
        ),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Inject a fault into the service's responses or events."""
    request = f.FaultRequest(
        kind=kind,
        machines=machine or [],
        groups=group or [],
        method=method.upper(),
        times=times,
        skip=after,
        starts_in=parsed_seconds("--from", from_),
        lasts=parsed_seconds("--for", for_),
        probability=probability,
        seed=seed,
        seconds=seconds,
        status=status,
        body=None if body is None else _read(body),
        takes_effect=takes_effect,
    )
    with service(url) as client:
        added = client.add_fault(request)
    if json:
        print_json(added)
        return
    print_fields(
        [
            ("fault", added.id),
            ("kind", added.kind),
            ("for", _target(added)),
            ("when", _when(added)),
            ("state", added.state),
        ]
    )


@app.command("list")
def list_(json: Json = False, url: Url = None) -> None:
    """List all faults, and how often each was applied."""
    with service(url) as client:
        faults = client.faults()
    _show(faults, json, "there are no faults")


@app.command()
@accepts_yes
def clear(
    fault: Annotated[
        str | None,
        typer.Argument(help="Fault to remove. Default: all.", autocompletion=completion.faults),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Remove a fault, or all of them, and show how often they were applied."""
    with service(url) as client:
        cleared = client.clear_faults() if fault is None else [client.clear_fault(fault)]
    _show(cleared, json, "there were no faults to remove")
    if cleared and not json:
        say(f"{counted(len(cleared), 'fault')} removed")


@app.command()
def kinds(json: Json = False) -> None:
    """List the kinds of faults."""
    from forewarn.service.faults.kinds import KINDS

    if json:
        print_json({kind.value: nature.description for kind, nature in KINDS.items()})
        return
    rows = [
        (
            kind.value,
            "events" if nature.of_events else ", ".join(nature.methods),
            nature.description,
        )
        for kind, nature in KINDS.items()
    ]
    print_table(("KIND", "APPLIES TO", "EFFECT"), rows)


def _show(faults: list[f.Fault], json: bool, if_none: str) -> None:
    if json:
        print_json(faults)
        return
    rows = [
        (
            fault.id,
            fault.kind,
            _target(fault),
            _when(fault),
            fault.state,
            fault.message,
            time_text(fault.last_at) or "never",
        )
        for fault in faults
    ]
    print_table(
        ("ID", "KIND", "TARGET", "WHEN", "STATE", "CONSUMED", "LAST"),
        rows,
        minor=("WHEN", "LAST", "CONSUMED", "STATE"),
        if_empty=if_none,
    )


def _target(fault: f.Fault) -> str:
    names = [*fault.machines, *(f"group {name}" for name in fault.groups)]
    target = ", ".join(names) or "all"
    return f"{fault.method} of {target}" if fault.method else target


def _when(fault: f.Fault) -> str:
    words = []
    if fault.skip:
        words.append(f"after {fault.skip}")
    if fault.probability < 1:
        words.append(f"with probability {fault.probability:g} (seed {fault.seed})")
    if fault.starts_at > fault.added_at:
        words.append(f"from {time_text(fault.starts_at)}")
    if fault.ends_at is not None:
        words.append(f"until {time_text(fault.ends_at)}")
    if fault.seconds is not None:
        words.append(in_words(round(fault.seconds * SECOND)))
    return ", ".join(words) or "always"


def _read(path: Path) -> str:
    from forewarn.support.limits import MAX_FAULT_BODY

    try:
        with path.open(encoding="utf-8", newline="") as file:  # without changing line endings
            return file.read(MAX_FAULT_BODY + 1)  # one more than is allowed, so that it is refused
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read as text: {error}") from error

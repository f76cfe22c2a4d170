"""`forewarn fault`: add, list and clear injected faults."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    print_fields,
    print_items,
    print_json,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import faults as operations
from forewarn.control.schema import faults as f
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words

app = typer.Typer(no_args_is_help=True)


def _print_added(added: f.Fault, _client: ControlClient) -> None:
    print_fields(
        [
            ("fault", added.id),
            ("kind", added.kind),
            ("for", _target(added)),
            ("when", _when(added)),
            ("state", added.state),
        ]
    )


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
        if fault is None:
            cleared = client.call(operations.CLEAR_FAULTS)
        else:
            cleared = [client.call(operations.CLEAR_FAULT, fault)]
    if json:
        print_json(cleared)
        return
    print_items(FAULTS, cleared, filtered=True)
    if cleared:
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


FAULTS = Table(
    {
        "ID": "id",
        "KIND": "kind",
        "TARGET": lambda fault: _target(fault),
        "WHEN": lambda fault: _when(fault),
        "STATE": "state",
        "CONSUMED": "message",
        "LAST": lambda fault: fault.last_at or "never",
    },
    minor=("WHEN", "LAST", "CONSUMED", "STATE"),
    if_empty="there are no faults",
    if_filtered="there were no faults to remove",
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


add_commands(
    app,
    "fault",
    operations,
    prints={operations.ADD_FAULT: _print_added, operations.LIST_FAULTS: FAULTS},
)

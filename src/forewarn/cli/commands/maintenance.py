"""`forewarn maintenance`: list, set, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.blackout_calendar import BlackoutCalendar, with_calendar
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    print_clock,
    print_fields,
    print_json,
    print_notes,
    print_table,
    service,
)
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import maintenance as operations
from forewarn.control.schema import maintenance as m

app = typer.Typer(no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(
        help="Name of the maintenance configuration.",
        autocompletion=completion.maintenance_configurations,
    ),
]


def _print_configurations(configurations: list[m.Maintenance], client: ControlClient) -> None:
    rows = [
        (
            item.name,
            item.select or "all machines",
            "; ".join(item.windows) or "at any time",
            "; ".join(item.blackouts) or "none",
        )
        for item in configurations
    ]
    print_table(
        ("NAME", "MACHINES", "WINDOWS", "BLACKOUTS"),
        rows,
        minor=("BLACKOUTS", "WINDOWS"),
        if_empty="there are no maintenance configurations: only the policies of groups limit"
        " when maintenance may start",
    )
    print_clock(client)


@app.command("set")
@accepts_yes
def set_(
    name: Name,
    select: Annotated[
        str,
        typer.Option(
            help="Labels of the machines, e.g. tier=web,!canary. Default: all machines.",
            autocompletion=completion.machine_labels,
        ),
    ] = "",
    window: Annotated[
        list[str] | None,
        typer.Option(
            help="Window in which maintenance may start, e.g. 'sat,sun 22:00-04:00 Europe/Berlin'."
            " Can be repeated."
        ),
    ] = None,
    blackout: Annotated[
        list[str] | None,
        typer.Option(
            help="Blackout during which no maintenance may start, e.g. '2026-12-20 to 2027-01-06'."
            " Can be repeated."
        ),
    ] = None,
    blackout_calendar: BlackoutCalendar = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Add a maintenance configuration, or replace it."""
    with service(url) as client:
        request = m.MaintenanceRequest(
            select=select,
            windows=list(window or ()),
            blackouts=with_calendar(blackout or (), blackout_calendar, client),
        )
        configuration = client.set_maintenance(name, request)
        if json:
            print_json(configuration)
            return
        print_fields(
            [
                ("name", configuration.name),
                ("machines", configuration.select or "all"),
                ("windows", "; ".join(configuration.windows) or "at any time"),
                ("blackouts", "; ".join(configuration.blackouts) or "none"),
            ]
        )
        print_notes(configuration.notes)
        print_clock(client)


add_commands(
    app,
    "maintenance",
    operations,
    prints={operations.LIST_MAINTENANCE: _print_configurations},
)

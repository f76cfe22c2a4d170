"""`forewarn maintenance`: list, set, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    print_clock,
    print_fields,
    print_json,
    print_notes,
    service,
)
from forewarn.cli.plain import add_commands, takes
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


CONFIGURATIONS = Table(
    {
        "NAME": "name",
        "MACHINES": lambda item: item.select or "all machines",
        "WINDOWS": lambda item: "; ".join(item.windows) or "at any time",
        "BLACKOUTS": lambda item: "; ".join(item.blackouts) or "none",
    },
    minor=("BLACKOUTS", "WINDOWS"),
    if_empty="there are no maintenance configurations: only the policies of groups limit when"
    " maintenance may start",
)


@app.command("set")
@accepts_yes
@takes(operations.SET_MAINTENANCE, without=("blackouts",))
def set_(
    name: Name,
    fields: Fields,
    blackout: Annotated[
        list[str] | None,
        typer.Option(
            help="Blackout during which no maintenance may start, e.g. '2026-12-20 to 2027-01-06'."
            " Can be repeated."
        ),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Add a maintenance configuration, or replace it."""
    with service(url) as client:
        request = m.MaintenanceRequest(blackouts=blackout or [], **fields)
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
    prints={operations.LIST_MAINTENANCE: CONFIGURATIONS},
)

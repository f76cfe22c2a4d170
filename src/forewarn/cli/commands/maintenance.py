"""`forewarn maintenance`: list, set, remove."""

from __future__ import annotations

import typer

from forewarn.cli.output import Table, print_clock, print_fields, print_notes
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import maintenance as operations
from forewarn.control.schema import maintenance as m

app = typer.Typer(no_args_is_help=True)
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


def _print_set(configuration: m.MaintenanceOutcome, client: ControlClient) -> None:
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
    prints={
        operations.LIST_MAINTENANCE: CONFIGURATIONS,
        operations.SET_MAINTENANCE: _print_set,
    },
)

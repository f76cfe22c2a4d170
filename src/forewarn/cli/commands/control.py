"""`forewarn control`: list, forget, authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.output import Table, fail, print_items, print_notes, say
from forewarn.cli.plain import add_commands
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import service as operations
from forewarn.control.schema import core as s

app = typer.Typer(no_args_is_help=True)


@app.callback()
def main() -> None:
    """List the control nodes of a service, forget those that are gone, or create the authority
    that they share."""


NODES = Table(
    {
        "NAME": "name",
        "ROLE": "role",
        "COMMIT": "commit",
        "BEHIND": "lag",
        "ADDRESS": "address",
        "VERSION": "version",
        "LEASE": lambda node: f"{node.lease:g}s" if node.lease else "",
        "STARTED": "started",
        "SEEN": "seen",
    },
    minor=("VERSION", "LEASE", "STARTED", "SEEN"),
)


def _print_nodes(nodes: list[s.ControlNode], client: ControlClient) -> None:
    print_items(NODES, nodes)
    print_notes(list(client.readiness().warnings.values()))


@app.command()
def authority(
    directory: Annotated[Path, typer.Argument(help="Directory to create it in.")],
) -> None:
    """Create an authority that issues the certificates of nodes: a certificate and its key.

    Do this once for a service, and copy the directory to its other control nodes. The setting
    'authority' names it.
    """
    need_extra("server")
    from forewarn.service.access.authority import AuthorityUnusable, create_authority

    try:
        created = create_authority(directory)
    except AuthorityUnusable as error:
        fail(str(error))
    say(f"{directory} has a new authority; its fingerprint is {created.fingerprint}")


add_commands(
    app,
    "control",
    operations,
    prints={operations.GET_CONTROL_NODES: _print_nodes},
)

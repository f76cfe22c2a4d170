"""`forewarn control`: list, forget, authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.operations import service as operations

app = typer.Typer(no_args_is_help=True)


@app.callback()
def main() -> None:
    """List the control nodes of a service, forget those that are gone, or create the authority
    that they share."""


@app.command("list")
def list_(json: Json = False, url: Url = None) -> None:
    """List the control nodes: which of them decides, and how far the others are behind."""
    with service(url) as client:
        nodes = client.control_nodes()
        if json:
            print_json(nodes)
            return
        print_table(
            (
                *("NAME", "ROLE", "COMMIT", "BEHIND", "ADDRESS", "VERSION", "LEASE"),
                *("STARTED", "SEEN"),
            ),
            [
                (
                    node.name,
                    node.role,
                    str(node.commit),
                    str(node.lag),
                    node.address,
                    node.version,
                    f"{node.lease:g}s" if node.lease else "",
                    time_text(node.started),
                    time_text(node.seen),
                )
                for node in nodes
            ],
            minor=("VERSION", "LEASE", "STARTED", "SEEN"),
        )
        print_notes(list(client.readiness().warnings.values()))


@app.command()
@accepts_yes
def forget(
    name: Annotated[str, typer.Argument(help="A control node that is away.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Forget a control node that is gone, so that it is no longer listed. One that is running is
    refused."""
    with service(url) as client:
        node = client.call(operations.FORGET_CONTROL_NODE, name)
        if json:
            print_json(node)
        else:
            say(f"{node.name}: forgotten; it was seen last at {time_text(node.seen)}")


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

"""`forewarn control`: list, forget."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.output import (
    Json,
    Url,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def main() -> None:
    """List the control nodes of a service, and forget those that are gone."""


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
def forget(
    name: Annotated[str, typer.Argument(help="A control node that is away.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Forget a control node that is gone, so that it is no longer listed. One that is running is
    refused."""
    with service(url) as client:
        node = client.forget_control_node(name)
        if json:
            print_json(node)
        else:
            say(f"{node.name}: forgotten; it was seen last at {time_text(node.seen)}")

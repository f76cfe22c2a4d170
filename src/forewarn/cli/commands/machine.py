"""`forewarn machine`: list, show, and what a machine's user may ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.commands.event import told
from forewarn.cli.output import Json, Url, as_json, fields, moment, notes, pace, say, service, table
from forewarn.control.schema import core as s

app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the machine.")]


@app.command("list")
def list_(
    group: Annotated[str | None, typer.Option(help="Only machines of this group.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Only machines with these labels: k=v, k!=v, k or !k, …")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all machines with their state and endpoint."""
    with service(url) as client:
        found = client.machines(group, label)
        if json:
            as_json(found)
            return
        table(
            ("MACHINE", "GROUP", "KIND", "UD", "FD", "HOST", "SPOT", "METADATA", "LAST POLL"),
            [_row(machine) for machine in found],
        )
        pace(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one machine."""
    with service(url) as client:
        found = client.machine(name)
        if json:
            as_json(found)
            return
        fields(
            [
                ("machine", found.name),
                ("group", f"{found.group} ({found.kind})"),
                ("update domain", str(found.update_domain)),
                ("fault domain", str(found.fault_domain)),
                ("host", found.host),
                ("spot", "yes" if found.spot else "no"),
                ("labels", ", ".join(f"{k}={v}" for k, v in found.labels.items()) or "none"),
                ("addresses", ", ".join(found.addresses)),
                ("metadata", found.metadata_url),
                ("state", f"gone ({found.gone})" if found.gone else "there"),
                ("polls", _polls(found)),
                ("events", ", ".join(found.events) or "none"),
            ]
        )
        pace(client)


@app.command()
def restart(name: Name, json: Json = False, url: Url = None) -> None:
    """Restart a machine as its user would: announced as a Reboot."""
    with service(url) as client:
        told(client.restart(name), json, client)


@app.command()
def redeploy(name: Name, json: Json = False, url: Url = None) -> None:
    """Redeploy a machine to another host as its user would: announced as a Redeploy."""
    with service(url) as client:
        told(client.redeploy(name), json, client)


@app.command()
def evict(name: Name, json: Json = False, url: Url = None) -> None:
    """Evict a spot machine: announced as a Preempt."""
    with service(url) as client:
        told(client.evict(name), json, client)


@app.command()
def delete(name: Name, json: Json = False, url: Url = None) -> None:
    """Delete a machine: announced as a Terminate if its scale set has terminate notifications."""
    with service(url) as client:
        told(client.delete(name), json, client)


@app.command()
def fail(
    name: Name,
    type: Annotated[str, typer.Option(help="Event type: Redeploy, Reboot or Freeze.")] = "Redeploy",
    json: Json = False,
    url: Url = None,
) -> None:
    """Simulate a sudden failure: an event that starts without having been announced."""
    with service(url) as client:
        told(client.fail_machine(name, s.FailMachineRequest(type=type)), json, client)


@app.command()
def restore(name: Name, json: Json = False, url: Url = None) -> None:
    """Bring back a machine that was evicted or deleted."""
    with service(url) as client:
        found = client.restore(name)
        if json:
            as_json(found)
        else:
            say(f"{found.name} has been restored")
            notes(found.notes)
            pace(client)


def _row(machine: s.Machine) -> tuple[str, ...]:
    return (
        machine.name,
        machine.group,
        machine.kind,
        str(machine.update_domain),
        str(machine.fault_domain),
        machine.host,
        "spot" if machine.spot else "",
        f"gone ({machine.gone})" if machine.gone else machine.metadata_url,
        moment(machine.last_poll) or "never",
    )


def _polls(machine: s.Machine) -> str:
    if not machine.polls:
        return "none"
    return f"{machine.polls}, last {moment(machine.last_poll)} with {machine.api_version}"

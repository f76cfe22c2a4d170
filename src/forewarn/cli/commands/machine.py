"""`forewarn machine`: list, show, restart, redeploy, evict, delete, fail, restore."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import print_outcome, type_names
from forewarn.cli.output import (
    Json,
    Url,
    print_clock,
    print_fields,
    print_json,
    print_notes,
    print_table,
    say,
    service,
    time_text,
)
from forewarn.control.schema import core as s

app = typer.Typer(no_args_is_help=True)
FAILURE_TYPES = type_names(lambda traits: not traits.deletes)
Name = Annotated[
    str, typer.Argument(help="Name of the machine.", autocompletion=completion.machines)
]


@app.command("list")
def list_(
    group: Annotated[
        str | None,
        typer.Option(help="Only machines of this group.", autocompletion=completion.groups),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Only machines with these labels, e.g. tier=web,!canary.")
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all machines with their state and endpoint."""
    with service(url) as client:
        machines = client.machines(group, label)
        if json:
            print_json(machines)
            return
        print_table(
            ("MACHINE", "GROUP", "KIND", "UD", "FD", "HOST", "SPOT", "METADATA", "LAST POLL"),
            [_row(machine) for machine in machines],
            minor=("FD", "UD", "SPOT", "KIND", "HOST", "GROUP", "METADATA"),
            if_empty="no machine matches"
            if group or label
            else "there are no machines; add some with 'forewarn apply FLEET.yaml'",
        )
        print_clock(client)


@app.command()
def show(name: Name, json: Json = False, url: Url = None) -> None:
    """Show one machine."""
    with service(url) as client:
        machine = client.machine(name)
        if json:
            print_json(machine)
            return
        print_fields(
            [
                ("machine", machine.name),
                ("group", f"{machine.group} ({machine.kind})"),
                ("update domain", str(machine.update_domain)),
                ("fault domain", str(machine.fault_domain)),
                ("host", machine.host),
                ("spot", "yes" if machine.spot else "no"),
                ("labels", ", ".join(f"{k}={v}" for k, v in machine.labels.items()) or "none"),
                ("addresses", ", ".join(machine.addresses)),
                ("metadata", machine.metadata_url),
                ("state", f"gone ({machine.gone})" if machine.gone else "present"),
                ("polls", _polls(machine)),
                ("events", ", ".join(machine.events) or "none"),
            ]
        )
        print_clock(client)


@app.command()
def restart(name: Name, json: Json = False, url: Url = None) -> None:
    """Restart a machine as its user would: announced as a Reboot."""
    with service(url) as client:
        print_outcome(client.restart(name), json, client)


@app.command()
def redeploy(name: Name, json: Json = False, url: Url = None) -> None:
    """Redeploy a machine to another host as its user would: announced as a Redeploy."""
    with service(url) as client:
        print_outcome(client.redeploy(name), json, client)


@app.command()
def evict(name: Name, json: Json = False, url: Url = None) -> None:
    """Evict a spot machine: announced as a Preempt."""
    with service(url) as client:
        print_outcome(client.evict(name), json, client)


@app.command()
def delete(name: Name, json: Json = False, url: Url = None) -> None:
    """Delete a machine: announced as a Terminate if its scale set has terminate notifications."""
    with service(url) as client:
        print_outcome(client.delete(name), json, client)


@app.command()
def fail(
    name: Name,
    type: Annotated[str, typer.Option(help=f"Event type: {FAILURE_TYPES}.")] = "Redeploy",
    json: Json = False,
    url: Url = None,
) -> None:
    """Simulate a sudden failure: an event that starts without having been announced."""
    with service(url) as client:
        print_outcome(client.fail_machine(name, s.FailMachineRequest(type=type)), json, client)


@app.command()
def restore(name: Name, json: Json = False, url: Url = None) -> None:
    """Bring back a machine that was evicted or deleted."""
    with service(url) as client:
        restored = client.restore(name)
        if json:
            print_json(restored)
        else:
            say(f"{restored.name} has been restored")
            print_notes(restored.notes)
            print_clock(client)


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
        time_text(machine.last_poll) or "never",
    )


def _polls(machine: s.Machine) -> str:
    if not machine.polls:
        return "none"
    return f"{machine.polls}, last {time_text(machine.last_poll)} with {machine.api_version}"

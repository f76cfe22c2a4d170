"""`forewarn host`: list, show, explain, maintain, degrade, fail, repair, cordon, uncordon, drain,
return, without-node, enroll, revoke."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.event import WOULD_IGNORE_WINDOWS
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.event_output import print_holds
from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    amounts_text,
    print_clock,
    print_fields,
    print_json,
    say,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands, takes
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import hosts as operations
from forewarn.control.schema import core as s
from forewarn.core.events import FAILURE_TYPE
from forewarn.support.text import counted, listing

app = typer.Typer(no_args_is_help=True)


def _node_text(node: s.HostNode | None) -> str:
    if node is None:
        return "-"
    since = f" since {time_text(node.since)}" if node.state == "disconnected" and node.since else ""
    lag = f", {node.lag:.1f} s behind" if node.lag else ""
    return node.state + since + lag


def _driver_text(driver: s.HostDriver | None) -> str:
    if driver is None:
        return "-"
    return (
        driver.state
        if driver.state == "joined"
        else f"{driver.state} since {time_text(driver.since)}"
    )


def _node_fields(node: s.HostNode | None) -> Iterator[tuple[str, str]]:
    """Yield what is known of a node, beside its state."""
    if node is None:
        return
    if node.version:
        yield "node version", node.version
    if node.lag is not None:
        yield "node lag", f"{node.lag:.1f} s" if node.lag else "none"
    if node.heard:
        yield "last heard", time_text(node.heard)
    if node.ended:
        yield "disconnected", node.ended


def _driver_fields(driver: s.HostDriver | None) -> Iterator[tuple[str, str]]:
    if driver is None:
        return
    yield "driver process", _driver_text(driver)
    if driver.name:
        yield "driver", f"{driver.name}, forewarn {driver.version}"


def _print_host(host: s.Host, client: ControlClient) -> None:
    since = f" since {time_text(host.since)}" if host.since else ""
    print_fields(
        [
            ("host", host.name),
            ("health", f"{host.health}{since}"),
            ("note", host.note or "none"),
            ("cordoned", (host.cordon_note or "yes") if host.cordoned else "no"),
            ("node", _node_text(host.node)),
            *_node_fields(host.node),
            *_driver_fields(host.driver),
            *([("enrollment", host.enrollment)] if host.enrollment else ()),
            ("labels", ", ".join(f"{k}={v}" for k, v in host.labels.items()) or "none"),
            *([("capacity", amounts_text(host.capacity))] if host.capacity else ()),
            ("machines", ", ".join(host.machines) or "none"),
            ("events", ", ".join(host.events) or "none"),
        ]
    )
    print_clock(client)


@app.command()
@accepts_yes
@takes(operations.ENROLL_HOSTS, without=("host",))
def enroll(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the host.", autocompletion=completion.hosts),
    ] = None,
    *,
    fields: Fields,
    json: Json = False,
    url: Url = None,
) -> None:
    """Print a line that, run on a host, gets the certificate of its node (with --driver, of its
    driver process) and starts it.

    It contains a token, which can be used once for each host and is not shown again.
    """
    request = s.EnrollmentRequest(host=name or "", **fields)
    with service(url) as client:
        enrollment = client.call(operations.ENROLL_HOSTS, request)
        if json:
            print_json(enrollment)
            return
        hosts = listing(enrollment.hosts)
        if request.hosts:
            hosts = f"{request.hosts} of {counted(len(enrollment.hosts), 'host')} ({hosts})"
        until = time_text(enrollment.expires_at)
        say(
            f"token {enrollment.id} for {hosts}, valid until {until}. Run there, as root:", err=True
        )
        command = "forewarn-driver" if request.driver else "forewarn-node"
        typer.echo(f"{command} join {','.join(enrollment.addresses)} {enrollment.token}")


def _print_explanation(explanation: s.HostExplanation, client: ControlClient) -> None:
    say(f"host '{explanation.name}': {explanation.message}")
    for plan in explanation.plans:
        say("")
        for event in plan.events:
            names = ", ".join(event.machines)
            say(f"{event.type} {event.id} for {names} of {event.group}: {event.status}")
        if not plan.holds:
            say(plan.message)
        print_holds(plan.holds)
    if explanation.if_drained:
        say(f"if it were drained: {explanation.if_drained}")
    print_clock(client)


def _ignoring_windows(what: str) -> Callable[..., str]:
    def concern(
        client: ControlClient, name: str, request: s.MaintainRequest | s.DegradeRequest
    ) -> str:
        if not request.ignore_windows:
            return ""
        machines = listing(client.host(name).machines)
        return f"{what} of host {name} (machines {machines}) {WOULD_IGNORE_WINDOWS}"

    return concern


def _failure(client: ControlClient, name: str, request: s.FailRequest) -> str:
    machines = client.host(name).machines
    named = f": {listing(machines)}" if machines else ""
    return (
        f"host {name} would be reported as failed: a {request.type or FAILURE_TYPE.value} of"
        f" {counted(len(machines), 'machine')} starts at once, without notice{named}"
    )


def _without_node(client: ControlClient, name: str) -> str:
    return (
        f"host {name} would no longer be expected to have a node; if one still serves it,"
        f" {_machines_of(client, name, 'would be disturbed without a warning')}"
    )


def _revocation(client: ControlClient, name: str) -> str:
    return (
        f"the node of host {name} would be disconnected; until a host is enrolled under that name,"
        f" nothing starts for {_machines_of(client, name)}"
    )


def _machines_of(client: ControlClient, name: str, what: str = "") -> str:
    """Return how many machines a host has, what becomes of them, and which these are."""
    machines = client.host(name).machines
    return " ".join(filter(None, (counted(len(machines), "machine"), what))) + (
        f": {listing(machines)}" if machines else ""
    )


def _labels(host: s.Host) -> str:
    return ",".join(f"{key}={value}" for key, value in host.labels.items())


HOSTS = Table(
    {
        "HOST": "name",
        "HEALTH": lambda host: host.health + (", cordoned" if host.cordoned else ""),
        "SINCE": "since",
        "NODE": lambda host: _node_text(host.node),
        "DRIVER": lambda host: _driver_text(host.driver),
        "MACHINES": lambda host: len(host.machines),
        "EVENTS": lambda host: len(host.events),
        "LABELS": _labels,
    },
    minor=("LABELS", "EVENTS", "MACHINES"),
    if_empty="there are no hosts",
    if_filtered="no host matches",
)

add_commands(
    app,
    "host",
    operations,
    prints={
        operations.LIST_HOSTS: HOSTS,
        operations.GET_HOST: _print_host,
        operations.EXPLAIN_HOST: _print_explanation,
    },
    concerns={
        operations.MAINTAIN_HOST: _ignoring_windows("maintenance"),
        operations.DEGRADE_HOST: _ignoring_windows("emptying"),
        operations.FAIL_HOST: _failure,
        operations.WITHOUT_NODE: _without_node,
        operations.REVOKE_HOST: _revocation,
    },
)

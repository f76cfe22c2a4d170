"""`forewarn machine`: list, show, restart, redeploy, evict, delete, fail, restore, moved."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.options import Fields
from forewarn.cli.output import (
    Json,
    Table,
    Url,
    amounts_text,
    print_clock,
    print_fields,
    print_items,
    print_json,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands, takes
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import machines as operations
from forewarn.control.schema import core as s
from forewarn.core.events import FAILURE_TYPE
from forewarn.core.time import SECOND
from forewarn.support.text import counted, in_words

app = typer.Typer(no_args_is_help=True)

MACHINES = Table(
    {
        "MACHINE": "name",
        "GROUP": "group",
        "KIND": "kind",
        "UPDATE DOMAIN": "update_domain",
        "FAULT DOMAIN": "fault_domain",
        "HOST": "host",
        "SPOT": lambda machine: "yes" if machine.spot else "",
        "METADATA": lambda machine: _gone(machine) or machine.metadata_url,
        "LAST POLL": lambda machine: (
            (time_text(machine.last_poll) or "never") + (", not back" if machine.not_back else "")
        ),
    },
    minor=("FAULT DOMAIN", "UPDATE DOMAIN", "SPOT", "KIND", "HOST", "GROUP", "METADATA"),
    if_empty="there are no machines; add some with 'forewarn apply FLEET.yaml'",
    if_filtered="no machine matches",
)
DIFFERENCES = Table(
    {
        "MACHINE": "machine",
        "DRIFT": "drift",
        "GROUP": "group",
        "HOST": "host",
        "SEEN ON": "seen_on",
        "STATE": lambda seen: f"{seen.state} ({seen.reason})" if seen.reason else seen.state,
        "SINCE": "since",
        "PROBLEM": "problem",
    },
    minor=("SINCE", "GROUP"),
    if_empty="no machine is known to differ from the inventory",
)


@app.command("list")
@takes(operations.LIST_MACHINES)
def list_(
    fields: Fields,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="List machines that differ from the inventory instead."),
    ] = False,
    json: Json = False,
    url: Url = None,
) -> None:
    """List all machines with their state and endpoint."""
    with service(url) as client:
        machines = [
            *(client.pages(operations.LIST_DRIFT) if drift else ()),
            *(() if drift else client.pages(operations.LIST_MACHINES, **fields)),
        ]
        if json:
            print_json(machines)
            return
        print_items(DIFFERENCES if drift else MACHINES, machines, filtered=bool(fields))
        print_clock(client)


def _print_machine(machine: s.Machine, client: ControlClient) -> None:
    print_fields(
        [
            ("machine", machine.name),
            ("group", f"{machine.group} ({machine.kind})"),
            ("update domain", str(machine.update_domain)),
            ("fault domain", str(machine.fault_domain)),
            ("host", _host(machine)),
            ("spot", "yes" if machine.spot else "no"),
            ("labels", ", ".join(f"{k}={v}" for k, v in machine.labels.items()) or "none"),
            *([("size", amounts_text(machine.size))] if machine.size else ()),
            ("tags", ", ".join(f"{k}={v}" for k, v in machine.tags.items()) or "none"),
            ("vm id", machine.vm_id),
            ("addresses", ", ".join(machine.addresses)),
            ("metadata", machine.metadata_url),
            ("state", _state(machine)),
            *([("drift", _drift(machine))] if machine.drift else ()),
            ("polls", _polls(machine)),
            ("answers", _answers(machine)),
            ("events", ", ".join(machine.events) or "none"),
        ]
    )
    print_clock(client)


def _eviction(client: ControlClient, request: s.MachinesRequest) -> str:
    machines = [_concerned(client.machine(name)) for name in request.machines]
    return f"{'; '.join(machines)} would be evicted"


def _failure(client: ControlClient, name: str, request: s.FailMachineRequest) -> str:
    type = request.type or FAILURE_TYPE.value
    what = _concerned(client.machine(name))
    return f"{what} would be reported as failed: a {type} starts at once, without notice"


def _deletions(client: ControlClient, request: s.MachinesRequest) -> str:
    return "; ".join(_deletion(client, name) for name in request.machines)


def _concerned(machine: s.Machine) -> str:
    """Return which machine a command is about, for a confirmation."""
    host = f" on host {machine.host}" if machine.host else ""
    events = f", with {counted(len(machine.events), 'active event')}," if machine.events else ""
    return f"machine {machine.name} of group {machine.group}{host}{events}"


def _deletion(client: ControlClient, name: str) -> str:
    machine = client.machine(name)
    notice = None if machine.spot else client.group(machine.group).terminate_notice
    return f"{_concerned(machine)} would be deleted, {_notice(notice)}"


def _notice(seconds: float | None) -> str:
    if seconds is None:
        return "at once, without notice"
    return f"with {in_words(round(seconds * SECOND))} of notice"


def _gone(machine: s.Machine) -> str:
    return f"gone ({machine.gone})" if machine.gone else ""


def _state(machine: s.Machine) -> str:
    if machine.gone:
        return _gone(machine)
    if machine.not_back is None:
        return "present"
    since = time_text(machine.not_back.since)
    return f"not back since {since}, when event {machine.not_back.event} was carried out"


def _drift(machine: s.Machine) -> str:
    seen_on = f", seen on {', '.join(machine.seen_on)}" if machine.seen_on else ""
    return f"{machine.drift}{seen_on}"


def _host(machine: s.Machine) -> str:
    polls_on = f", but it polls on {machine.polls_on}" if machine.polls_on else ""
    if machine.inventory_host == machine.host:
        return machine.host + polls_on
    inventory = machine.inventory_host or "no host"
    contradicted = ", and contradicts the move" if machine.disputed else ""
    return f"{machine.host} (the fleet file says {inventory}{contradicted}){polls_on}"


def _polls(machine: s.Machine) -> str:
    if not machine.polls:
        return "none"
    silent = "; it does not poll any more" if machine.coverage == "silent" else ""
    last = f"last {time_text(machine.last_poll)} with {machine.api_version}"
    return f"{machine.polls}, {last}{silent}"


def _answers(machine: s.Machine) -> str:
    answer = f"last {time_text(machine.last_answer)}" if machine.last_answer else "none"
    if not machine.ignored_events:
        return answer
    return f"{answer}; {machine.ignored_events:,} of its events started without any approval"


add_commands(
    app,
    "machine",
    operations,
    prints={
        operations.GET_MACHINE: _print_machine,
    },
    concerns={
        operations.EVICT_MACHINES: _eviction,
        operations.DELETE_MACHINES: _deletions,
        operations.FAIL_MACHINE: _failure,
    },
)

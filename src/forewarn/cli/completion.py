"""Shell completion: the script for each shell, and names that are read from the running service.

The shell calls `forewarn` itself with the variable `_FOREWARN_COMPLETE`. A completion never fails
and never waits long: without an answer of the service there are no suggestions.
"""

from __future__ import annotations

import enum
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import typer

from forewarn.support.text import counted

if TYPE_CHECKING:
    from forewarn.control.client.client import ControlClient

VARIABLE = "_FOREWARN_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
TIMEOUT = 2.0  # seconds for an answer of the service, while somebody waits at a prompt

Suggestion: TypeAlias = tuple[str, str]  # a value, and what it is
Complete: TypeAlias = Callable[[typer.Context, str], Iterable[Suggestion]]
CompleteWord: TypeAlias = Callable[[str], Iterable[Suggestion]]  # whatever else was typed

# An autoloaded function has to complete on its first call, and not only define itself.
_ZSH_CALL = """if [ "$funcstack[1]" = "_forewarn" ]; then
  {function} "$@"
else
  {compdef}
fi
"""


def script(shell: str) -> str:
    """Return the completion script for a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    text = get_completion_script(prog_name="forewarn", complete_var=VARIABLE, shell=shell).strip()
    if shell == "zsh":
        body, _, compdef = text.rpartition("\n")
        function = compdef.split()[1]
        text = f"{body}\n{_ZSH_CALL.format(function=function, compdef=compdef)}".rstrip()
    return text + "\n"


def prepare() -> None:
    """Make this process able to answer the shell, if the shell has started it."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()


def of_service(read: Callable[[ControlClient], Iterable[Suggestion]]) -> Complete:
    """Return a function that completes with what is read from the service."""

    def complete(ctx: typer.Context, incomplete: str) -> Iterable[Suggestion]:
        from forewarn.cli import credentials
        from forewarn.control.client.client import ControlClient, ControlError
        from forewarn.node.daemon.discovery import NotFound, find

        options = ctx.find_root().params
        credentials.set_options(options.get("token_file"), options.get("ca"))
        url = ctx.params.get("url") or os.environ.get("FOREWARN_URL")
        try:
            client = ControlClient(credentials.address_of(url or find()))
            client.timeout = TIMEOUT
            return [item for item in read(client) if item[0].startswith(incomplete)]
        except (ControlError, NotFound, credentials.CredentialError, OSError, ValueError):
            return []

    return complete


def _machines(client: ControlClient) -> Iterable[Suggestion]:
    for machine in client.machines():
        yield machine.name, f"in {machine.group}" + (f", on {machine.host}" if machine.host else "")


def _events(client: ControlClient) -> Iterable[Suggestion]:
    for event in client.events():
        yield event.id, f"{event.type} of {', '.join(event.machines)}, {event.status}"


def _groups(client: ControlClient) -> Iterable[Suggestion]:
    for group in client.groups():
        yield group.name, f"{group.kind} with {counted(len(group.machines), 'machine')}"


def _hosts(client: ControlClient) -> Iterable[Suggestion]:
    for host in client.hosts():
        yield host.name, f"{host.health}, {counted(len(host.machines), 'machine')}"


def _rollouts(client: ControlClient) -> Iterable[Suggestion]:
    for rollout in client.rollouts():
        yield rollout.id, f"{rollout.type} of {rollout.selection}, {rollout.state}"


def _halts(client: ControlClient) -> Iterable[Suggestion]:
    for halt in client.halts():
        yield halt.id, f"{halt.scope}, by {halt.by}"


def _configurations(client: ControlClient) -> Iterable[Suggestion]:
    for configuration in client.maintenance():
        yield configuration.name, configuration.select or "all machines"


def _faults(client: ControlClient) -> Iterable[Suggestion]:
    for fault in client.faults():
        yield fault.id, fault.kind


def _tokens(client: ControlClient) -> Iterable[Suggestion]:
    for token in client.tokens():
        yield token.name, f"{token.role}, {token.id}"


def _notifications(client: ControlClient) -> Iterable[Suggestion]:
    for state in client.notifications():
        yield state.name, f"{state.target}, {state.state}"


def _labels(labels: Iterable[Mapping[str, str]]) -> Iterable[Suggestion]:
    pairs = {f"{key}={value}" for of_one in labels for key, value in of_one.items()}
    return [(pair, "label") for pair in sorted(pairs)]


machines = of_service(_machines)
events = of_service(_events)
groups = of_service(_groups)
hosts = of_service(_hosts)
rollouts = of_service(_rollouts)
halts = of_service(_halts)
faults = of_service(_faults)
maintenance_configurations = of_service(_configurations)
tokens = of_service(_tokens)
notifications = of_service(_notifications)
machine_labels = of_service(lambda client: _labels(m.labels for m in client.machines()))
host_labels = of_service(lambda client: _labels(host.labels for host in client.hosts()))
lanes = of_service(lambda client: [*_hosts(client), *_groups(client)])
control_nodes = of_service(lambda client: [(n.name, n.role) for n in client.control_nodes()])

# By the collection in the path of an operation: what its argument is, and how it is completed.
RESOURCES = {
    "machines": ("the machine", machines),
    "groups": ("the group", groups),
    "hosts": ("the host", hosts),
    "events": ("the event", events),
    "rollouts": ("the rollout", rollouts),
    "halts": ("the halt", halts),
    "maintenance": ("the maintenance configuration", maintenance_configurations),
    "control-nodes": ("the control node", control_nodes),
    "faults": ("the fault", faults),
    "tokens": ("the token", tokens),
    "notify": ("the notification", notifications),
}


def one_of(*values: str) -> CompleteWord:
    """Return a function that completes with one of these values."""
    return lambda incomplete: [(value, "") for value in values if value.startswith(incomplete)]


def members(enumeration: Iterable[enum.Enum]) -> CompleteWord:
    """Return a function that completes with one of the values of an enumeration."""
    return one_of(*(member.value for member in enumeration))


def some_of(*values: str) -> CompleteWord:
    """Return a function that completes with these values, separated by commas."""

    def complete(incomplete: str) -> Iterable[Suggestion]:
        before, comma, last = incomplete.rpartition(",")
        chosen = before.split(",")
        return [
            (f"{before}{comma}{value}", "")
            for value in values
            if value.startswith(last) and value not in chosen
        ]

    return complete


def scenarios(incomplete: str) -> Iterable[Suggestion]:
    """Suggest the included scenarios. Files are suggested by the shell."""
    from importlib.resources import files

    shipped = files("forewarn.testing.scenarios").joinpath("shipped")
    names = sorted(file.name.removesuffix(".yaml") for file in shipped.iterdir())
    return [(name, "included scenario") for name in names if name.startswith(incomplete)]


def rules(incomplete: str) -> Iterable[Suggestion]:
    """Suggest the rules of the verdict."""
    from forewarn.verdict.rules import RULES

    return [(name, rule.expects) for name, rule in RULES.items() if name.startswith(incomplete)]


def record_kinds(incomplete: str) -> Iterable[Suggestion]:
    """Suggest kinds of entries of the history, separated by commas."""
    from forewarn.core.history import RecordKind

    return some_of(*(kind.value for kind in RecordKind))(incomplete)


def machines_of_fleet(ctx: typer.Context, incomplete: str) -> Iterable[Suggestion]:
    """Suggest the machines of the fleet file, or of the sample fleet."""
    from forewarn.node.dev import sample_fleet
    from forewarn.service.fleet import read

    file = ctx.params.get("fleet")
    try:
        fleet = read.load(file) if file else sample_fleet()
    except (read.FleetError, OSError):
        return []
    return one_of(*(machine.name for machine in fleet.machines))(incomplete)


def machines_of_scenario(ctx: typer.Context, incomplete: str) -> Iterable[Suggestion]:
    """Suggest the machines of the scenario, separated by commas."""
    from forewarn.testing import scenarios

    try:
        fleet = scenarios.find(ctx.params["scenario"]).fleet
    except (scenarios.ScenarioError, LookupError, OSError, TypeError):
        return []
    return some_of(*(machine.name for machine in fleet.machines))(incomplete)


def rollout_states(incomplete: str) -> Iterable[Suggestion]:
    """Suggest the states of rollouts."""
    from forewarn.service.rollouts.rollouts import STATES

    return one_of(*STATES)(incomplete)


def fault_kinds(incomplete: str) -> Iterable[Suggestion]:
    """Suggest the kinds of faults."""
    from forewarn.service.faults.kinds import FaultKind

    return [(kind.value, "fault") for kind in FaultKind if kind.value.startswith(incomplete)]


# By the name of an option, of which `exclude_` may be the beginning.
NAMED: Mapping[str, Complete | CompleteWord] = {
    "event": events,
    "what": record_kinds,
    "machine": machines,
    "group": groups,
    "host": hosts,
    "kind": fault_kinds,
    "lane": lanes,
    "label": machine_labels,
    "host_label": host_labels,
    "rollout": rollouts,
    "select": machine_labels,
    "coverage": one_of("listening", "silent", "never-polled", "never-approves"),
    "state": rollout_states,
}


def of_option(path: str, name: str, values: Sequence[str] | None) -> Complete | CompleteWord | None:
    """Return what completes an option of an operation, which has one of these values, if any."""
    if values is not None:
        return one_of(*values)
    if name == "label" and path in ("/v1/hosts", "/v1/enrollments"):
        return host_labels
    return NAMED.get(name.removeprefix("exclude_"))


@functools.cache
def values_of(enumeration: str) -> Sequence[str] | None:
    """Return the values of an enumeration that the types of the control API name."""
    from forewarn.core.access import Role
    from forewarn.core.events import EventType, Source, Status, types_that
    from forewarn.core.fleet import GroupKind, Health, OverWhen, Placement
    from forewarn.core.rollouts.model import EVACUATE_WORK_RETURN, LIVE_MIGRATION, Conflicts, WorkBy
    from forewarn.core.rollouts.progress import StepState

    kept = [type.value for type in types_that(lambda traits: not traits.deletes)]
    of_hosts = [type.value for type in types_that(lambda traits: traits.host_maintenance)]
    values: dict[str, list[str]] = {
        each.__name__: [member.value for member in each]
        for each in (
            *(
                EventType,
                Status,
                Source,
                Health,
                GroupKind,
                OverWhen,
                Placement,
                Conflicts,
                WorkBy,
                Role,
            ),
        )
    }
    values["FailureType"] = kept
    values["RolloutKind"] = [*kept, LIVE_MIGRATION, EVACUATE_WORK_RETURN]
    values["MaintenanceMode"] = [*of_hosts, LIVE_MIGRATION]
    values["PauseAfter"] = ["nothing", "canary", "waves"]
    values["FaultMethod"] = ["GET", "POST"]
    values["StepState"] = [state.value for state in StepState]
    values["NodeFilter"] = ["joined", "disconnected", "unknown", "none"]
    values["OverviewBy"] = ["host", "group"]
    return values.get(enumeration)

"""The configuration of `forewarn dev`: loopback addresses, a sample fleet, and what it prints."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import typer

from forewarn import __version__
from forewarn.cli.commands.dev_requests import RefusedRequestLog
from forewarn.cli.output import fail, fail_all
from forewarn.core.time import Durations
from forewarn.drivers.command.options import CommandOptions
from forewarn.drivers.registry import COMMAND, DriverConfig
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Address, Config, Node, settings
from forewarn.node.config import Addresses, ArmListener
from forewarn.node.dev import on_loopback, sample_fleet
from forewarn.node.listening.make_certificate import make_certificate
from forewarn.node.listening.sockets import confined, local
from forewarn.node.settings.model import Settings
from forewarn.node.wiring import has_machine_ports
from forewarn.service.access.machine_tokens import LEAST_KEY
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet, FleetError
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.support import guard
from forewarn.support.azure_names import AZURE_NAMES
from forewarn.support.program import find_program
from forewarn.support.text import counted, listing

SHOWN_MACHINES = 12


def configure(
    *,
    fleet: Path | None,
    force: bool,
    speed: float,
    virtual: bool,
    speak_as: str | None,
    addresses: str,
    metadata: Sequence[str],
    control: str,
    state: Path,
    record: Path | None,
    throttle: int,
    enable_delay: int,
    driver_command: str | None,
    gates: Sequence[str],
    observe: bool,
    arm: str | None,
    scratch: Path,
) -> Config:
    """Return the configuration. Files that nobody needs later are written to `scratch`."""
    try:
        machines = on_loopback(read.load(fleet) if fleet else sample_fleet())
    except FleetError as error:
        fail_all(str(error).splitlines())
    first, *more = _guest_addresses(metadata)
    return Config(
        fleet=machines,
        force_fleet=force,
        removal_limit=None if force else RemovalLimit.parse(Settings().max_removals),
        state=state,
        rules=Durations(speed=speed, silence=None, enable_delay=enable_delay),
        virtual=guard.wall_us() // 1_000_000 * 1_000_000 if virtual else None,
        identity=Identity.TARGET,
        speak_as=_speaker(machines, speak_as),
        limits=Limits(throttle=throttle),
        metadata=first,
        more_metadata=tuple(more),
        whole_loopback=True,
        addresses=Addresses(addresses),
        control=_address("--control", control, local),
        record=record,
        driver=_driver(driver_command),
        gates=_gates(gates),
        observe=observe,
        faults=True,
        arm=None if arm is None else _arm(_address("--arm-address", arm, local), scratch),
        identities=b"" if arm is None else secrets.token_bytes(LEAST_KEY),
    )


def print_welcome(node: Node) -> None:
    machines = [(g, m) for g in node.machine_index.groups() for m in g.machines]
    clock = "a virtual clock" if node.config.virtual is not None else "real time"
    example = next((m for _, m in machines if m.name == node.config.speak_as), machines[0][1])
    lines = [f"forewarn {__version__} on {clock}: {counted(len(machines), 'machine')}"]
    for group, machine in machines[:SHOWN_MACHINES]:
        spot = ", spot" if machine.spot else ""
        where = f"{group.kind.value} '{group.name}', domain {machine.update_domain}{spot}"
        lines.append(f"  {node.url_of(machine):<23} {machine.name:<14} {where}")
    if len(machines) > SHOWN_MACHINES:
        lines.append(f"  … and {len(machines) - SHOWN_MACHINES} more: forewarn machine list")
    if len(node.metadata_urls) > 1:
        lines.append(f"  the endpoint also listens at {listing(node.metadata_urls[1:])}")
    lines += [
        f"get the events of {example.name}:",
        f"  curl -H Metadata:true '{node.url_of(example)}/metadata/scheduledevents"
        "?api-version=2020-07-01'",
        "create an event:",
        f"  forewarn event schedule Reboot {example.name}",
        f"  forewarn machine restart {example.name}",
        _other_addresses(node, example.name),
        f"watch it in a browser: {node.control_url}/ui/",
    ]
    if node.arm_url:
        lines += _arm_lines(node)
    for line in lines:
        typer.echo(line, err=True)
    if node.trace is not None:
        node.trace.add_sink(RefusedRequestLog().add)


def _arm(address: Address, directory: Path) -> ArmListener:
    """Return where clients of Azure Resource Manager connect to, with a new certificate."""
    pair = make_certificate(directory, [address.host, "localhost", *AZURE_NAMES])
    return ArmListener(address, pair)


def _arm_lines(node: Node) -> list[str]:
    """Return the lines to paste for az, Python and JavaScript."""
    from forewarn.arm import inventory as i  # with the control API, after guests are answered
    from forewarn.control.views import azure

    assert node.config.arm is not None
    url, certificate = node.arm_url, node.config.arm.tls.certificate
    members = [(g, m) for g in node.machine_index.groups() for m in g.machines]
    group, machine = next((each for each in members if not i.is_uniform(each[0])), members[0])
    subscription, resource_group = azure.subscription_of(group), azure.resource_group_of(group)
    restart = f"vm restart -g {resource_group} -n {machine.name}"
    if i.is_uniform(group):
        name, number = azure.scale_set_of(group), i.instance_id(group, machine)
        restart = f"vmss restart -g {resource_group} -n {name} --instance-ids {number}"
    if subscription != azure.DEFAULT_SUBSCRIPTION:
        restart += f" --subscription {subscription}"
    header = "TOKEN" if node.tokens.needed else "dev"
    lines = [
        "use az or Azure's SDKs, in a separate shell (your own az profile is not touched):",
        f"  export REQUESTS_CA_BUNDLE={certificate} NODE_EXTRA_CA_CERTS={certificate}"
        f" SSL_CERT_FILE={certificate}",
        f"  export IDENTITY_ENDPOINT={url}/identity IDENTITY_HEADER={header}"
        " AZURE_CONFIG_DIR=$(mktemp -d) AZURE_CORE_COLLECT_TELEMETRY=false",
        f"  az cloud register -n forewarn --endpoint-resource-manager {url}",
        f"  az cloud set -n forewarn && az login --identity && az {restart}",
        "in Python, and in JavaScript:",
        f'  ComputeManagementClient(ManagedIdentityCredential(), "{subscription}",'
        f' base_url="{url}", credential_scopes=["{url}/.default"])',
        f'  new ComputeManagementClient(new ManagedIdentityCredential(), "{subscription}",'
        f' {{endpoint: "{url}", credentialScopes: "{url}/.default"}})',
    ]
    if node.tokens.needed:
        lines.append("(this state has tokens, so TOKEN has to be one: forewarn token create NAME)")
    return lines


def _other_addresses(node: Node, default: str) -> str:
    if has_machine_ports(node.config):
        return f"(requests to {node.metadata_url} are answered as those of {default})"
    return (
        f"(requests to any other loopback address, such as {node.metadata_url}, are answered as"
        f" those of {default})"
    )


def _gates(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    commands = {}
    for text in texts:
        name, equals, program = text.partition("=")
        try:
            command = shlex.split(program)
        except ValueError as error:
            raise typer.BadParameter(f"{text}: {error}", param_hint="--gate") from error
        if not equals or not command:
            raise typer.BadParameter(
                f"'{text}' is not NAME=PROGRAM, for example healthy=/usr/local/bin/healthy",
                param_hint="--gate",
            )
        commands[name] = command
    try:
        return settings.gates(commands)
    except settings.SettingsError as error:
        fail(f"--gate: {error}")


def _speaker(fleet: Fleet, name: str | None) -> str:
    """Return the machine that is answered at loopback addresses of no machine."""
    names = [machine.name for machine in fleet.machines]
    if not names:
        fail("the fleet has no machines")
    if name is not None and name not in names:
        fail(f"--as {name}: unknown machine; expected one of {', '.join(names[:10])}")
    return name or names[0]


def _driver(command: str | None) -> DriverConfig:
    if command is None:
        return DriverConfig()
    try:
        return DriverConfig(
            COMMAND, CommandOptions(program=list(find_program(shlex.split(command))))
        )
    except ValueError as error:
        fail(f"--driver-command: {error}")


def _guest_addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    """Parse the values of --metadata. Each needs its own port, because `dev` listens on every
    loopback address at once."""
    addresses = tuple(_address("--metadata", text, _ipv4) for text in texts)
    for first, second in combinations(addresses, 2):
        if first.port == second.port != 0:
            fail(
                f"--metadata {second}: dev listens on every loopback address, so this conflicts"
                f" with {first}; choose another port"
            )
    return addresses


def _ipv4(host: str) -> bool:
    return confined(host) and ":" not in host


def _address(option: str, text: str, allowed: Callable[[str], bool]) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    if not allowed(address.host):
        fail(
            f"{option} {text}: dev only listens on loopback, for example 127.0.0.1;"
            " use forewarn serve for other addresses"
        )
    return address

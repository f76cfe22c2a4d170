"""`forewarn dev`: a service on loopback for a developer. Its configuration is `dev_config.py`."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import completion
from forewarn.cli.commands.service_options import (
    Control,
    FleetFile,
    Metadata,
    Record,
    State,
    need_extra,
    run_service,
)
from forewarn.cli.output import parsed
from forewarn.core.deciding.announce import TIGHT_NOTICE
from forewarn.core.events import EventType
from forewarn.core.time import MAX_SPEED, MIN_SPEED, Durations
from forewarn.support.text import in_words, parse_duration

DEV_METADATA = "127.0.0.1:8169"
DEV_CONTROL = "127.0.0.1:8170"
DEV_ARM = "127.0.0.1:8171"


def dev(
    fleet: FleetFile = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Let fleets remove any number of machines, also with active events."
        ),
    ] = False,
    speed: Annotated[
        float, typer.Option(help="Divide durations, such as the notice, by this number.")
    ] = 1.0,
    clock: Annotated[
        str,
        typer.Option(
            help="The service's clock. A virtual one only moves with 'forewarn clock'.",
            autocompletion=completion.one_of("real", "virtual"),
        ),
    ] = "real",
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Machine for requests from loopback addresses that no machine has.",
            autocompletion=completion.machines_of_fleet,
        ),
    ] = None,
    addresses: Annotated[
        str,
        typer.Option(
            help="How machines are told apart: each by its own address ('loopback'), each by its"
            " own port on 127.0.0.1 ('ports'), or by whichever this system offers ('auto').",
            autocompletion=completion.one_of("auto", "loopback", "ports"),
        ),
    ] = "auto",
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    throttle: Annotated[
        int,
        typer.Option(
            help="Maximum number of requests per machine and second; 0 for no limit.", min=0
        ),
    ] = 0,
    enable_delay: Annotated[
        str, typer.Option(help="Delay before a group's first response.")
    ] = "0s",
    driver_command: Annotated[
        str | None, typer.Option(help="Program that carries out events, with its arguments.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(help="Gate command for rollouts. Repeatable."),
    ] = None,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Observe clients for 'forewarn verdict'. Makes polls slower.",
        ),
    ] = True,
    arm: Annotated[
        bool,
        typer.Option(
            "--arm",
            help="Also answer az and Azure's SDKs, as Azure Resource Manager does, at"
            f" {DEV_ARM}. A certificate is made for that.",
        ),
    ] = False,
    arm_address: Annotated[
        str | None, typer.Option(help="Another address for --arm; port 0 picks a free one.")
    ] = None,
) -> None:
    """Run a development service on loopback with a sample fleet."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise typer.BadParameter(
            f"the speed must be a number from {MIN_SPEED:g} to {MAX_SPEED:g}", param_hint="--speed"
        )
    if addresses not in ("auto", "loopback", "ports"):
        raise typer.BadParameter(
            f"'{addresses}' is not 'auto', 'loopback' or 'ports'", param_hint="--addresses"
        )
    if clock not in ("real", "virtual"):
        raise typer.BadParameter(f"'{clock}' is not 'real' or 'virtual'", param_hint="--clock")
    if clock == "virtual" and speed != 1.0:
        raise typer.BadParameter("--speed cannot be combined with a virtual clock")
    delay = parsed(parse_duration, enable_delay, "--enable-delay")
    need_extra("server")
    from forewarn.cli.commands.dev_config import configure, print_welcome

    if isinstance(state, str):
        raise typer.BadParameter(
            "pass a file; forewarn serve works with a database", param_hint="--state"
        )
    with contextlib.ExitStack() as stack:
        arm_text = arm_address or (DEV_ARM if arm else None)
        scratch = Path()
        if state is None or arm_text is not None:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forewarn-")))
        config = configure(
            fleet=fleet,
            force=force,
            speed=speed,
            virtual=clock == "virtual",
            speak_as=as_,
            addresses=addresses,
            metadata=metadata or [DEV_METADATA],
            control=control or DEV_CONTROL,
            state=state or scratch / "forewarn.db",
            record=record,
            throttle=throttle,
            enable_delay=delay,
            driver_command=driver_command,
            gates=gate or [],
            observe=observe,
            arm=arm_text,
            scratch=scratch,
        )
        if speed != 1.0:
            _print_warnings(speed)
        run_service(config, print_welcome)


def _print_warnings(speed: float) -> None:
    typer.echo(f"speed {speed:g}: durations are divided by {speed:g}", err=True)
    for type in EventType:
        notice = Durations(speed=speed).paced(type.traits.notice)
        if notice < TIGHT_NOTICE:
            typer.echo(
                f"warning: at this speed a {type.value} has only {in_words(notice)} of notice;"
                " a client that polls once a second may not see it in time",
                err=True,
            )

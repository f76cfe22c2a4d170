"""`forewarn dev` and `forewarn serve`: make a configuration, run a node, say when it is ready."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forewarn.cli.output import fail, fail_all, parsed, say
from forewarn.core.deciding.announce import TIGHT_NOTICE
from forewarn.core.events import EventType
from forewarn.core.time import MAX_SPEED, MIN_SPEED, Durations
from forewarn.support.text import in_words, listing, parse_duration

if TYPE_CHECKING:
    from forewarn.node import Config
    from forewarn.node.settings import LoadedSettings

DEV_METADATA = "127.0.0.1:8169"
DEV_CONTROL = "127.0.0.1:8170"

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="FOREWARN_CONFIG", help="Settings file (TOML)."),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(help="HOST:PORT of the metadata endpoint. Port 0 picks a free one. Repeatable."),
]
Control = Annotated[
    str | None, typer.Option(help="HOST:PORT of the control API. Port 0 picks a free one.")
]
FleetFile = Annotated[Path | None, typer.Option("--fleet", help="Fleet file (YAML or JSON).")]
State = Annotated[Path | None, typer.Option(help="SQLite file for the state.")]
NoFront = Annotated[
    bool, typer.Option("--no-front", help="Disable the fast path for polls; for comparison.")
]
Record = Annotated[
    Path | None, typer.Option(help="Record all requests and responses in this file.")
]


def dev(
    fleet: FleetFile = None,
    speed: Annotated[
        float, typer.Option(help="Divide durations, such as the notice, by this number.")
    ] = 1.0,
    clock: Annotated[
        str, typer.Option(help="'real', or 'virtual': time only moves on command.")
    ] = "real",
    as_: Annotated[
        str | None, typer.Option("--as", help="Machine that answers for addresses of no machine.")
    ] = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    throttle: Annotated[
        int,
        typer.Option(help="Maximum number of requests per machine and second. 0: no limit.", min=0),
    ] = 0,
    enable_delay: Annotated[str, typer.Option(help="Delay of a group's first response.")] = "0s",
    driver_command: Annotated[
        str | None, typer.Option(help="Program that carries events out, with its arguments.")
    ] = None,
    gate: Annotated[
        list[str] | None,
        typer.Option(help="NAME=PROGRAM: a gate command for rollouts. Repeatable."),
    ] = None,
    observe: Annotated[
        bool,
        typer.Option(
            "--observe/--no-observe",
            help="Observe clients for 'forewarn verdict'. Makes polls slower.",
        ),
    ] = True,
    no_front: NoFront = False,
) -> None:
    """Run a development service on loopback with a sample fleet."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise typer.BadParameter(
            f"the speed must be a number from {MIN_SPEED:g} to {MAX_SPEED:g}", param_hint="--speed"
        )
    if clock not in ("real", "virtual"):
        raise typer.BadParameter("--clock is 'real' or 'virtual'", param_hint="--clock")
    if clock == "virtual" and speed != 1.0:
        raise typer.BadParameter("--speed cannot be combined with a virtual clock")
    delay = parsed(parse_duration, enable_delay)
    need_server()
    from forewarn.cli.commands.dev_defaults import configure, welcome

    with contextlib.ExitStack() as stack:
        if state is None:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="forewarn-"))
            state = Path(scratch) / "forewarn.db"
        config = configure(
            fleet=fleet,
            speed=speed,
            virtual=clock == "virtual",
            speak_as=as_,
            metadata=metadata or [DEV_METADATA],
            control=control or DEV_CONTROL,
            state=state,
            record=record,
            throttle=throttle,
            enable_delay=delay,
            driver_command=driver_command,
            gates=gate or [],
            observe=observe,
            front=not no_front,
        )
        if speed != 1.0:
            _warn_of(speed)
        _run(config, welcome)


def serve(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    no_front: NoFront = False,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Upgrade a state file of an older version.")
    ] = False,
) -> None:
    """Run the service. Machines are identified by their source address."""
    # It means to read the settings anew, which is about to be done.
    signal.signal(signal.SIGHUP, lambda *_: None)
    need_server()
    from forewarn.node import CannotListen
    from forewarn.node import settings as s
    from forewarn.node.daemon.become_supervisor import (
        become_supervisor,
        load_if_workers,
        socket_notes,
    )
    from forewarn.node.listening.socket_activation import HandedOverSockets, use_handed_over

    flags = flags_of(fleet, metadata, control, state, record, no_front)

    def load() -> tuple[s.LoadedSettings, Config]:
        loaded, made = s.load(config, os.environ, flags)
        made = msgspec.structs.replace(made, migrate=migrate)
        return loaded, use_handed_over(made, handed_over, loaded.settings.allow_other_addresses)

    try:
        handed_over = HandedOverSockets.from_environment(os.environ)
        if (several := load_if_workers(config, flags)) is not None:
            _print_notes(socket_notes(several[1], handed_over))
            become_supervisor(*several, handed_over, path=config, flags=flags, migrate=migrate)
        loaded, made = load()
    except s.SettingsError as error:
        fail_all(error.problems)
    except CannotListen as error:
        fail(str(error))
    _print_notes(socket_notes(s.config(loaded, with_fleet=False), handed_over))
    machines = made.fleet.machines if made.fleet else []
    silent = [machine.name for machine in machines if not machine.addresses]
    if silent:
        typer.echo(
            f"note: these machines have no address and cannot poll: {listing(silent)}", err=True
        )
    _run(made, lambda _: None, loaded, load)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        say(note, err=True)


def flags_of(
    fleet: Path | None,
    metadata: list[str] | None,
    control: str | None,
    state: Path | None,
    record: Path | None,
    no_front: bool,
) -> dict[str, Any]:
    """What is said by flags, under the names of the settings."""
    found: dict[str, Any] = {"fleet": fleet, "metadata": metadata, "control": control}
    return found | {"state": state, "record": record, "no_front": no_front}


def need_server() -> None:
    """The base install has what talks to a service; running one takes more."""
    missing = [name for name in ("litestar", "sqlalchemy", "uvicorn") if not find_spec(name)]
    if missing:
        fail("this command needs the server packages: pip install 'forewarn[server]'")


def _warn_of(speed: float) -> None:
    typer.echo(f"speed {speed:g}: durations are divided by {speed:g}", err=True)
    for type in EventType:
        notice = Durations(speed=speed).paced(type.traits.notice)
        if notice < TIGHT_NOTICE:
            typer.echo(
                f"warning: at this speed a {type.value} has only {in_words(notice)} of notice;"
                " a client that polls once a second may not see it in time",
                err=True,
            )


def _run(
    config: Config, welcome: Any, said: LoadedSettings | None = None, load: Any = None
) -> None:
    import uvloop

    from forewarn.node import CannotListen
    from forewarn.node.daemon.discovery import note
    from forewarn.node.daemon.run import run
    from forewarn.service.engine.otel import TracesUnusable
    from forewarn.store import StoreFailed, StoreUnusable

    try:
        uvloop.run(run(config, welcome, note, said, load))
    except (CannotListen, StoreFailed, StoreUnusable, TracesUnusable) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot start'}: {error.strerror}")

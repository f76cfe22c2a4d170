"""Options that commands about a service share, and running a node in this process."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forewarn.cli.output import fail, fail_all
from forewarn.cli.values import StateOption
from forewarn.support import extras

if TYPE_CHECKING:
    from forewarn.node import Config
    from forewarn.node.settings import LoadedSettings

NEEDS_LINUX = 2  # exit code of a command that this system cannot carry out

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="FOREWARN_CONFIG", help="Settings file (TOML)."),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(help="Address of the metadata endpoint. Port 0 picks a free port. Repeatable."),
]
Control = Annotated[
    str | None, typer.Option(help="Address of the control API. Port 0 picks a free port.")
]
FleetFile = Annotated[Path | None, typer.Option("--fleet", help="Fleet file (YAML or JSON).")]
STOPPED_STATE = (
    "Use this state, a file or postgresql://…, of a stopped service instead of a running service."
)
State = Annotated[
    StateOption | None, typer.Option(help="SQLite file for the state, or postgresql://….")
]
JoinedControl = Annotated[
    str, typer.Argument(help="Addresses of the service for nodes, separated by commas.")
]
JoinedHost = Annotated[
    str,
    typer.Option(
        help="Name of this host in the fleet. Default: as the token says, or the name of the"
        " computer.",
    ),
]
Record = Annotated[
    Path | None, typer.Option(help="Record all requests and responses in this file.")
]


def flags_of(
    fleet: Path | None,
    metadata: list[str] | None,
    control: str | None,
    state: StateOption | None,
    record: Path | None,
) -> dict[str, Any]:
    """Return the values of the flags under the names of the settings."""
    flags: dict[str, Any] = {"fleet": fleet, "metadata": metadata, "control": control}
    return flags | {"state": state, "record": record}


def need_extra(extra: extras.Extra) -> None:
    """Fail unless the packages of an extra are installed; the base install has none of them."""
    try:
        extras.need(extra, "this command")
    except extras.MissingExtraError as error:
        fail(str(error))


def state_in_settings(config: Path | None) -> StateOption:
    """Return the state that the settings name; a default does not count."""
    import os

    from forewarn.node import settings as s
    from forewarn.store.engines import parse_state

    try:
        loaded = s.gather(config, os.environ)
    except s.SettingsError as error:
        fail_all(error.problems)
    if loaded.origin("state").source is s.Source.DEFAULT:
        fail("pass --state FILE, or --config FILE with settings that name the state")
    try:
        return parse_state(loaded.settings.state)
    except ValueError as error:
        fail(f"state: {error}")


def need_linux(what: str, instead: str) -> None:
    """Exit with 2 where `what` cannot work, with a line that says what to use instead."""
    from forewarn.support.system import linux_problem

    if problem := linux_problem(what, instead):
        fail(problem, NEEDS_LINUX)


def run_event_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine with uvloop, or without it where there is none (Windows)."""
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def run_service(
    config: Config, on_start: Any, loaded: LoadedSettings | None = None, load: Any = None
) -> None:
    """Run a node until it is stopped. With `load`, its settings can be reloaded."""
    gc.disable()  # until it serves: what is imported is no garbage, and to look for some takes long
    from forewarn.node import CannotListen
    from forewarn.node.daemon.discovery import note
    from forewarn.node.daemon.run import run
    from forewarn.service.engine.otel import TracesUnusable
    from forewarn.store import StoreFailed, StoreUnusable

    try:
        run_event_loop(run(config, on_start, note, loaded, load))
    except CannotListen as error:
        fail(f"{error}{_running_there(config)}")
    except (StoreFailed, StoreUnusable, TracesUnusable) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'cannot start'}: {error.strerror}")
    finally:
        gc.enable()


def _running_there(config: Config) -> str:
    """Return which service runs at one of these addresses already, or nothing."""
    from forewarn.node.daemon.discovery import running

    wanted = {f"http://{address}" for address in (config.control, config.metadata) if address}
    for note in running():
        if wanted & {note.control, note.metadata}:
            return f". A service runs there already (process {note.pid}): see 'forewarn status'"
    return ""

"""`forewarn config`: check and show the settings, without starting the service."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forewarn.cli.commands.service_options import (
    ConfigFile,
    Control,
    FleetFile,
    Metadata,
    Record,
    State,
    flags_of,
    need_extra,
)
from forewarn.cli.output import Json, fail_all, print_json, print_table
from forewarn.cli.settings_check import print_findings
from forewarn.support.urls import HIDDEN, without_password

if TYPE_CHECKING:
    from forewarn.node.settings import LoadedSettings
    from forewarn.support.finding import Finding

app = typer.Typer(no_args_is_help=True)

Arguments = Annotated[
    bool, typer.Option("--arguments", help="Also show the arguments of programs.")
]

_USERINFO = re.compile(r"(?<=://)[^\s?#]*@")  # user and password in a URL
_QUERY_VALUE = re.compile(r"(?<=[?&#])([^=&#\s]*=)?[^&#\s]+")  # of the query or fragment of a URL


@app.command()
def check(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    json: Json = False,
) -> None:
    """Check the settings against this machine. Exits with 1 if they cannot be used."""
    flags = flags_of(fleet, metadata, control, state, record)
    need_extra("server")
    from forewarn.node import settings as s
    from forewarn.node.preflight.machine import findings

    def check() -> Iterable[Finding]:
        return findings(*s.load(config, os.environ, flags), config)

    print_findings(check, json)


@app.command()
def show(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    arguments: Arguments = False,
    json: Json = False,
) -> None:
    """Show every setting, its value and where the value comes from, without secrets."""
    flags = flags_of(fleet, metadata, control, state, record)
    need_extra("server")
    from forewarn.node import settings as s

    try:
        loaded = s.gather(config, os.environ, flags)
    except s.SettingsError as error:
        fail_all(error.problems)
    rows = [(key, value, str(loaded.origin(key))) for key, value in _values(loaded, arguments)]
    if json:
        print_json([{"key": key, "value": value, "from": place} for key, value, place in rows])
        return
    print_table(
        ("SETTING", "VALUE", "FROM"),
        [(key, _text(value), place) for key, value, place in rows],
        minor=("FROM",),
    )


def _values(loaded: LoadedSettings, arguments: bool) -> list[tuple[str, Any]]:
    """Return every setting with its value, and each key of a table as a setting of its own."""
    from forewarn.node.settings.driver_tables import options_type
    from forewarn.notify.config import without_secrets

    values: dict[str, Any] = msgspec.to_builtins(loaded.settings)
    programs: set[str] = set()  # keys of programs, whose arguments may be secret
    for driver, options in values.pop("driver_options").items():
        values |= {f"{driver}.{key}": value for key, value in options.items()}
        declared = options_type(driver)
        programs |= {f"{driver}.{key}" for key in (declared.programs if declared else ())}
    if values["gates"] is not None:
        gates = {f"gates.{name}": command for name, command in values.pop("gates").items()}
        values |= gates
        programs |= gates.keys()

    if values["notify"] is not None:
        tables = values.pop("notify")
        values |= {f"notify.{n}": without_secrets(table) for n, table in enumerate(tables)}

    def hide(key: str) -> bool:
        return key in programs and not arguments

    values["state"] = without_password(values["state"])  # the rest of it is no secret

    return [
        (
            key,
            value
            if key == "state"
            else _without_secrets(_without_arguments(value) if hide(key) else value),
        )
        for key, value in values.items()
    ]


def _without_arguments(command: list[str]) -> list[str]:
    """Return a command with its arguments hidden, since one may be a password or a key."""
    return command[:1] + [HIDDEN] * len(command[1:])


def _without_secrets(value: Any) -> Any:
    """Return a value with user, password, query and fragment of URLs hidden."""
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    value = _USERINFO.sub(f"{HIDDEN}@", value)
    return _QUERY_VALUE.sub(lambda match: f"{match[1] or ''}{HIDDEN}", value)


def _text(value: Any) -> str:
    """Return a value as it is written in the settings file."""
    return "none" if value is None or value == "" else msgspec.json.encode(value).decode()

"""`forewarn config`: are the settings right, and what are they, without starting anything."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forewarn.cli.commands.service_options import (
    ConfigFile,
    Control,
    FleetFile,
    Metadata,
    NoFront,
    Record,
    State,
    flags_of,
    need_server,
)
from forewarn.cli.output import Json, as_json, fail_all, say, table

if TYPE_CHECKING:
    from forewarn.node.settings import LoadedSettings

app = typer.Typer(no_args_is_help=True)

Arguments = Annotated[
    bool, typer.Option("--arguments", help="Also show the arguments of programs.")
]

HIDDEN = "***"
_PASSWORD = re.compile(r"(?<=://)[^\s?#]*@")  # in an address: whoever, and what they know
_ASKED = re.compile(r"(?<=[?&#])([^=&#\s]*=)?[^&#\s]+")  # what is asked for there, by name or not


@app.command()
def check(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    no_front: NoFront = False,
    json: Json = False,
) -> None:
    """Check the settings against this machine. Exits with 1 if they cannot be used."""
    flags = flags_of(fleet, metadata, control, state, record, no_front)
    need_server()
    from forewarn.node import settings as s
    from forewarn.node.preflight.machine import findings

    problems: list[str] = []
    warnings: list[str] = []
    try:
        said, made = s.load(config, os.environ, flags)
        for found in findings(said, made, config):
            (problems if found.fatal else warnings).append(found.says)
    except s.SettingsError as error:
        problems += error.problems
    if json:
        as_json({"usable": not problems, "problems": problems, "warnings": warnings})
        raise typer.Exit(1 if problems else 0)
    for warning in warnings:
        say(f"warning: {warning}", err=True)
    if problems:
        fail_all(problems)
    say("the settings are valid")


@app.command()
def show(
    config: ConfigFile = None,
    fleet: FleetFile = None,
    metadata: Metadata = None,
    control: Control = None,
    state: State = None,
    record: Record = None,
    no_front: NoFront = False,
    arguments: Arguments = False,
    json: Json = False,
) -> None:
    """Show every setting, its value and where the value comes from, without secrets."""
    flags = flags_of(fleet, metadata, control, state, record, no_front)
    need_server()
    from forewarn.node import settings as s

    try:
        said = s.gather(config, os.environ, flags)
    except s.SettingsError as error:
        fail_all(error.problems)
    rows = [(key, value, str(said.origin(key))) for key, value in _values(said, arguments)]
    if json:
        as_json([{"key": key, "value": value, "from": place} for key, value, place in rows])
        return
    table(("SETTING", "VALUE", "FROM"), [(key, _shown(value), place) for key, value, place in rows])


def _values(said: LoadedSettings, arguments: bool) -> list[tuple[str, Any]]:
    """Return every setting with its value, keys of tables one by one."""
    from forewarn.node.settings.driver_tables import options_type

    values: dict[str, Any] = msgspec.to_builtins(said.settings)
    programs: set[str] = set()  # keys of programs, whose arguments may be secret
    for driver, options in values.pop("driver_options").items():
        values |= {f"{driver}.{key}": value for key, value in options.items()}
        declared = options_type(driver)
        programs |= {f"{driver}.{key}" for key in (declared.programs if declared else ())}
    if values["gates"] is not None:
        gates = {f"gates.{name}": words for name, words in values.pop("gates").items()}
        values |= gates
        programs |= gates.keys()
    return [
        (key, _public(_bare(value) if key in programs and not arguments else value))
        for key, value in values.items()
    ]


def _bare(words: list[str]) -> list[str]:
    """A program without what it is given, which may be a password or a key."""
    return words[:1] + [HIDDEN] * len(words[1:])


def _public(value: Any) -> Any:
    """Without passwords that stand in an address, or in what is asked for there."""
    if isinstance(value, list):
        return [_public(one) for one in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    value = _PASSWORD.sub(f"{HIDDEN}@", value)
    return _ASKED.sub(lambda found: f"{found[1] or ''}{HIDDEN}", value)


def _shown(value: Any) -> str:
    """As it is written in the file."""
    return "none" if value is None or value == "" else msgspec.json.encode(value).decode()

"""`forewarn config`: are the settings right, and what are they, without starting anything."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forewarn.cli.output import Json, as_json, fail_all, say, table

if TYPE_CHECKING:
    from forewarn.cli.settings import Said

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    Path | None,
    typer.Option("--config", envvar="FOREWARN_CONFIG", help="The settings (TOML)."),
]

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")  # in an address: whoever, and what they know


@app.command()
def check(config: File = None, json: Json = False) -> None:
    """All that is wrong with the settings, and what may be; exit code 1 if they cannot be used."""
    from forewarn.cli.serving import need_server

    need_server()
    from forewarn.cli import settings as s
    from forewarn.cli.surroundings import findings

    problems: list[str] = []
    warnings: list[str] = []
    try:
        said, made = s.load(config, os.environ)
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
    say("the settings can be used")


@app.command()
def show(config: File = None, json: Json = False) -> None:
    """Every setting, what it is, and where that comes from."""
    from forewarn.cli.serving import need_server

    need_server()
    from forewarn.cli import settings as s

    try:
        said = s.gather(config, os.environ)
    except s.SettingsError as error:
        fail_all(error.problems)
    rows = [(key, value, str(said.origin(key))) for key, value in _values(said)]
    if json:
        as_json([{"key": key, "value": value, "from": place} for key, value, place in rows])
        return
    table(("SETTING", "VALUE", "FROM"), [(key, _shown(value), place) for key, value, place in rows])


def _values(said: Said) -> list[tuple[str, Any]]:
    """Those of a table one by one, as they can be said."""
    values: list[tuple[str, Any]] = []
    for key, value in msgspec.to_builtins(said.settings).items():
        below = value if isinstance(value, dict) else None
        if below is None:
            values.append((key, _public(value)))
        else:
            values += [(f"{key}.{one}", _public(what)) for one, what in below.items()]
    return values


def _public(value: Any) -> Any:
    """Without passwords that stand in an address."""
    if isinstance(value, str):
        return _PASSWORD.sub("***@", value)
    return [_public(one) for one in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    """As it is written in the file."""
    return "none" if value is None or value == "" else msgspec.json.encode(value).decode()

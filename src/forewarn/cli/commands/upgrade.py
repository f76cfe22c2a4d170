"""`forewarn upgrade`: upgrade an older state without starting the service.

A service that upgraded the file and then served without its sockets would carry out events that no
guest had been able to see.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import ConfigFile, need_extra
from forewarn.cli.output import Json, fail, fail_all, print_json, say
from forewarn.cli.values import StateOption


def upgrade(
    state: Annotated[
        StateOption | None,
        typer.Option(help="State file, or postgresql://…. Default: the one in the settings."),
    ] = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Upgrade a state that an older version wrote, while the service is stopped."""
    need_extra("server")
    from forewarn.store import StoreUnusable
    from forewarn.store.engines import shown, stored_state

    state = state or _state_in_settings(config)
    try:
        upgrade = stored_state(state).upgrade()
    except StoreUnusable as error:
        fail(str(error))
    file = shown(state)
    kept = None if upgrade.kept is None else str(upgrade.kept)
    if json:
        print_json({"file": file, "from": upgrade.before, "to": upgrade.after, "kept": kept})
    elif kept is None:
        say(f"{file} has schema {upgrade.after}, which is current")
    else:
        say(f"{file} was upgraded from schema {upgrade.before} to {upgrade.after}")
        say(f"the old file is kept as {kept}; remove it when you no longer need it")


def _state_in_settings(config: Path | None) -> StateOption:
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

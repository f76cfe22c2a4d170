"""`forewarn upgrade`: an older state file brought up to date, without serving it.

That is how it is done on a fleet: a service that upgraded and then served where no guest can ask
would carry events out that nobody was told of.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import ConfigFile, need_server
from forewarn.cli.output import Json, as_json, fail, fail_all, say


def upgrade(
    state: Annotated[
        Path | None, typer.Option(help="State file. Default: the one in the settings.")
    ] = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Upgrade a state file of an older version while the service is stopped."""
    need_server()
    from forewarn.store import StoreUnusable
    from forewarn.store.engines import stored_state

    file = state or _named(config)
    try:
        done = stored_state(file).upgrade()
    except StoreUnusable as error:
        fail(str(error))
    kept = None if done.kept is None else str(done.kept)
    if json:
        as_json({"file": str(file), "from": done.before, "to": done.after, "kept": kept})
    elif kept is None:
        say(f"{file} has schema {done.after}, which is current")
    else:
        say(f"{file} was upgraded from schema {done.before} to {done.after}")
        say(f"the old file is kept as {kept}; remove it when you no longer need it")


def _named(config: Path | None) -> Path:
    from forewarn.node import settings as s

    try:
        said = s.gather(config, os.environ)
    except s.SettingsError as error:
        fail_all(error.problems)
    if said.origin("state").source is s.Source.DEFAULT:
        fail("pass --state FILE, or --config FILE with settings that name the state")
    return Path(said.settings.state)

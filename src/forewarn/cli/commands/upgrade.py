"""`forewarn upgrade`: upgrade an older state without starting the service.

A service that upgraded the file and then served without its sockets would carry out events that no
guest had been able to see.
"""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.commands.service_options import ConfigFile, need_extra, state_in_settings
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import Json, fail, print_json, say
from forewarn.cli.values import StateOption


@accepts_yes
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

    state = state or state_in_settings(config)
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

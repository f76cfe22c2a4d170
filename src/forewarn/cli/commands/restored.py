"""`forewarn restored`: use a database as it is, after it was restored or has lost commits."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.commands.service_options import ConfigFile, need_extra, state_in_settings
from forewarn.cli.confirm import Yes, confirm
from forewarn.cli.output import fail, print_notes, say
from forewarn.cli.values import StateOption


def restored(
    state: Annotated[
        StateOption | None,
        typer.Option(help="postgresql://…. Default: the one in the settings."),
    ] = None,
    config: ConfigFile = None,
    yes: Yes = False,
) -> None:
    """Use a database that was restored, or that has lost commits, as it is."""
    need_extra("server")
    state = state or state_in_settings(config)
    if not isinstance(state, str):
        fail("only a database is restored by other means; for a file, use forewarn restore")
    need_extra("postgres")
    from forewarn.store import StoreUnusable
    from forewarn.store.engines import shown
    from forewarn.store.postgres.stored import PostgresState

    database = PostgresState(state)
    try:
        last, known = database.lost()
        if not yes:
            known_text = f", although a control node knew commits up to {known}" if known else ""
            confirm(f"the service goes on with commit {last} of {shown(state)}{known_text}")
        database.mark_restored()
    except StoreUnusable as error:
        fail(str(error))
    say(f"{shown(state)} is used as it is, from commit {last}")
    print_notes(
        [
            "it is not known what was done after that: the next control node that decides observes"
            " events before it carries them out, and pauses rollouts",
            "tokens that were revoked since are valid again: see forewarn token list",
        ]
    )

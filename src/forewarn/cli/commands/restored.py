"""`forewarn restored`: use a state as it is, after it was restored or has lost commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import ConfigFile, need_extra, state_in_settings
from forewarn.cli.confirm import Yes, confirm
from forewarn.cli.output import fail, print_notes, say
from forewarn.cli.values import StateOption


def restored(
    state: Annotated[
        StateOption | None,
        typer.Option(help="File, or postgresql://…. Default: the one in the settings."),
    ] = None,
    config: ConfigFile = None,
    yes: Yes = False,
) -> None:
    """Use a state that was restored, or that has lost commits, as it is."""
    need_extra("server")
    state = state or state_in_settings(config)
    from forewarn.store import StoreUnusable
    from forewarn.store.engines import shown

    try:
        last = _file(state, yes) if isinstance(state, Path) else _database(state, yes)
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


def _file(state: Path, yes: bool) -> int:
    """Mark a file, and return its last commit. Raises StoreUnusable."""
    from forewarn.store.sqlite.state_file import SqliteFile

    if not yes:
        confirm(f"the service goes on with {state}, although it may be older than what was shown")
    file = SqliteFile(state)
    with file.keep_owner():
        return file.mark_restored()


def _database(state: str, yes: bool) -> int:
    """Mark a database, and return its last commit. Raises StoreUnusable."""
    need_extra("postgres")
    from forewarn.store.engines import shown
    from forewarn.store.postgres.stored import PostgresState

    database = PostgresState(state)
    last, known = database.lost()
    if not yes:
        known_text = f", although a control node knew commits up to {known}" if known else ""
        confirm(f"the service goes on with commit {last} of {shown(state)}{known_text}")
    database.mark_restored()
    return last

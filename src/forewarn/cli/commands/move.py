"""`forewarn move`: move a state from a file to a database, for several control nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import need_extra
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import Json, fail, print_fields, print_json, print_notes, time_text
from forewarn.support.text import counted


@accepts_yes
def move(
    file: Annotated[Path, typer.Argument(help="State file of a stopped service.")],
    database: Annotated[
        str, typer.Argument(help="postgresql://USER@HOST/DATABASE, without a state.", metavar="URL")
    ],
    json: Json = False,
) -> None:
    """Move a state from a file to a PostgreSQL database. The file is kept under another name."""
    need_extra("server")
    need_extra("postgres")
    from forewarn.control.views.core import backup_contents
    from forewarn.store import StoreUnusable
    from forewarn.store.engines import parse_state, shown
    from forewarn.store.move import move

    try:
        url = parse_state(database)
        if isinstance(url, Path):
            raise typer.BadParameter("pass postgresql://USER@HOST/DATABASE", param_hint="URL")
        moved = move(file, url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="URL") from None
    except StoreUnusable as error:
        fail(str(error))
    contents = backup_contents(moved.contents)
    if json:
        print_json(
            {
                "database": shown(url),
                "kept": str(moved.kept),
                "contents": contents,
                "changed": moved.changed,
            }
        )
        return
    print_fields(
        [
            ("database", shown(url)),
            ("last commit", str(contents.commit)),
            ("until", time_text(contents.until)),
            ("groups", str(contents.groups)),
            ("machines", str(contents.machines)),
            ("active events", str(contents.active_events)),
            ("tokens", str(contents.tokens)),
            ("before", f"the file is kept as {moved.kept}"),
        ]
    )
    notes = ["set state to the URL of the database before you start the service"]
    if moved.changed:
        notes.append(
            f"{counted(moved.changed, 'value')} contained NUL characters, which PostgreSQL cannot"
            " store; they are U+FFFD now"
        )
    print_notes(notes)

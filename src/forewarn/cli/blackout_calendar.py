"""`--blackout-calendar`: blackouts from an iCalendar file, which the command reads once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.output import fail, print_notes
from forewarn.control.client.client import ControlClient
from forewarn.core.windows.openings import LOOK_AHEAD
from forewarn.support import extras
from forewarn.support.instants import from_datetime
from forewarn.support.limits import MAX_BLACKOUTS
from forewarn.support.text import in_words

BlackoutCalendar = Annotated[
    Path | None,
    typer.Option(
        help="iCalendar file (.ics) whose events become blackouts. The file is read once, when the"
        " command is run, and the blackouts of the next 400 days are stored."
    ),
]


def with_calendar(blackouts: Sequence[str], file: Path | None, client: ControlClient) -> list[str]:
    """Return these blackouts and those of a calendar file, if there is one. If it cannot be read,
    print why and exit with 1."""
    if file is None:
        return list(blackouts)
    from forewarn.service.fleet.calendar import CalendarError, load_blackouts, no_events

    try:
        extras.need("server", "--blackout-calendar")
        added = load_blackouts(file, from_datetime(client.clock().now))
    except extras.MissingExtraError as error:
        fail(str(error))
    except CalendarError as error:
        fail(f"{file}: {error}")
    if not added:
        print_notes([no_events(str(file))])
    if len(blackouts) + len(added) > MAX_BLACKOUTS:
        others = f", besides {len(blackouts)} others" if blackouts else ""
        fail(
            f"{file}: its events result in {len(added)} blackouts in the next"
            f" {in_words(LOOK_AHEAD)}{others}; there can be at most {MAX_BLACKOUTS}"
        )
    return [*blackouts, *added]

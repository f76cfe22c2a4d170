"""`forewarn clock`: what time it is for the service, and, where it is virtual, winding it."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli.output import Json, Url, as_json, fields, moment, parsed, service
from forewarn.control import schema as s
from forewarn.core.time import SECOND
from forewarn.core.words import parse_duration

app = typer.Typer(no_args_is_help=True)


@app.command()
def show(json: Json = False, url: Url = None) -> None:
    """The service's time, and when time alone will next change something."""
    with service(url) as client:
        _show(client.clock(), json)


@app.command()
def advance(
    by: Annotated[str, typer.Argument(help="How far, e.g. 15m.")],
    json: Json = False,
    url: Url = None,
) -> None:
    """Wind a virtual clock forward; returns when everything due has happened and is visible."""
    length = parsed(parse_duration, by)
    with service(url) as client:
        _show(client.advance(s.AdvanceRequest(by=length / SECOND)), json)


def _show(clock: s.Clock, json: bool) -> None:
    if json:
        as_json(clock)
        return
    fields(
        [
            ("now", moment(clock.now)),
            ("clock", "virtual" if clock.virtual else "real"),
            ("speed", f"{clock.speed:g}" + ("" if clock.speed == 1 else " (divides durations)")),
            ("steady since", moment(clock.steady_since) or "the beginning"),
            ("next due", moment(clock.next_due) or "nothing"),
        ]
    )

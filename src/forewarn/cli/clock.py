"""`forewarn clock`: what time it is for the service, and, where it is virtual, winding it."""

from __future__ import annotations

from math import isfinite
from typing import Annotated

import typer

from forewarn.cli.output import Json, Url, as_json, fields, moment, parsed, service
from forewarn.control import schema as s
from forewarn.core.time import SECOND
from forewarn.words import parse_duration

app = typer.Typer(no_args_is_help=True)

By = Annotated[str, typer.Argument(help="How far, e.g. 15m.")]


@app.command()
def show(json: Json = False, url: Url = None) -> None:
    """The service's time, and when time alone will next change something."""
    with service(url) as client:
        _show(client.clock(), json)


@app.command()
def advance(by: By, json: Json = False, url: Url = None) -> None:
    """Wind a virtual clock forward; returns when everything due has happened and is visible."""
    length = parsed(parse_duration, by)
    with service(url) as client:
        _show(client.advance(s.AdvanceRequest(by=length / SECOND)), json)


@app.command()
def play(by: By, json: Json = False, url: Url = None) -> None:
    """Wind a virtual clock forward, and wait at every change until whoever polls has seen it."""
    length = parsed(parse_duration, by)
    with service(url) as client:
        _show(client.play(length / SECOND), json)


@app.command()
def resume(
    speed: Annotated[float, typer.Option(help="Seconds that pass in one of real time.")] = 1.0,
    json: Json = False,
    url: Url = None,
) -> None:
    """Let a virtual clock run by itself; it waits for whoever polls, as play does."""
    if not isfinite(speed):
        raise typer.BadParameter(f"{speed:g} is no speed; say a number", param_hint="--speed")
    with service(url) as client:
        _show(client.resume_clock(speed), json)


@app.command()
def pause(json: Json = False, url: Url = None) -> None:
    """Let a virtual clock stand still, wherever it is."""
    with service(url) as client:
        _show(client.pause_clock(), json)


def _show(clock: s.Clock, json: bool) -> None:
    if json:
        as_json(clock)
        return
    fields(
        [
            ("now", moment(clock.now)),
            ("clock", "virtual" if clock.virtual else "real"),
            ("runs", _runs(clock)),
            ("speed", f"{clock.speed:g}" + ("" if clock.speed == 1 else " (divides durations)")),
            ("steady since", moment(clock.steady_since) or "the beginning"),
            ("next due", moment(clock.next_due) or "nothing"),
        ]
    )


def _runs(clock: s.Clock) -> str:
    if not clock.running_speed:
        return "when it is wound"
    fast = "" if clock.running_speed == 1 else f", {clock.running_speed:g} seconds in one"
    return f"by itself{fast}"

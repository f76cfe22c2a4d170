"""`forewarn clock`: show the service's time, move a virtual clock, and accept a real one that the
service does not trust."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.commands.service_options import STOPPED_STATE, need_extra
from forewarn.cli.confirm import accepts_yes
from forewarn.cli.output import (
    Json,
    Url,
    fail,
    print_fields,
    print_json,
    print_notes,
    service,
    time_text,
)
from forewarn.cli.plain import add_commands
from forewarn.cli.values import StateOption
from forewarn.control.client.client import ControlClient
from forewarn.control.operations import service as operations
from forewarn.control.schema import core as s
from forewarn.support.instants import to_datetime

app = typer.Typer(no_args_is_help=True)


@app.command()
@accepts_yes
def accept(
    state: Annotated[
        StateOption | None,
        typer.Option(help=STOPPED_STATE),
    ] = None,
    json: Json = False,
    url: Url = None,
) -> None:
    """Make a service accept a wall clock that it does not trust."""
    if state is not None:
        _accept_offline(state, url, json)
        return
    with service(url) as client:
        accepted = client.call(operations.ACCEPT_CLOCK)
    print_notes(accepted.notes)
    if json:
        print_json(accepted)
    else:
        _print_clock(accepted, client)


def _accept_offline(state: StateOption, url: str | None, json: bool) -> None:
    if url is not None:
        raise typer.BadParameter("pass either --state or --url (or FOREWARN_URL), not both")
    if isinstance(state, Path) and not state.is_file():
        fail(f"{state}: there is no such state file")
    need_extra("server")
    from forewarn.core import Refused
    from forewarn.service.access.offline import accept_clock
    from forewarn.service.access.tokens import LOCAL_NAME
    from forewarn.service.telemetry import log
    from forewarn.store import OutcomeUnknown, StoreFailed, StoreUnusable

    log.configure("console")
    try:
        accepted = asyncio.run(accept_clock(state, LOCAL_NAME, print_notes))
    except (StoreUnusable, StoreFailed, OutcomeUnknown) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or state}: {error.strerror}")
    if isinstance(accepted, Refused):
        fail(accepted.message)
    print_notes(accepted.notes)
    before, now = to_datetime(accepted.before), to_datetime(accepted.now)
    if json:
        print_json({"before": before, "now": now, "notes": list(accepted.notes)})
        return
    print_fields([("now", time_text(now)), ("before", time_text(before))])


def _print_clock(clock: s.Clock, _client: ControlClient) -> None:
    print_fields(
        [
            ("now", time_text(clock.now)),
            ("clock", "virtual" if clock.virtual else "real"),
            ("runs", _runs(clock)),
            ("speed", f"{clock.speed:g}" + ("" if clock.speed == 1 else " (divides durations)")),
            ("steady since", time_text(clock.steady_since) or "the beginning"),
            ("next due", time_text(clock.next_due) or "nothing"),
            *([("not trusted", clock.untrusted)] if clock.untrusted else []),
        ]
    )


def _runs(clock: s.Clock) -> str:
    if not clock.running_speed:
        return "only when it is advanced"
    speed = "" if clock.running_speed == 1 else f", {clock.running_speed:g} times as fast"
    return f"by itself{speed}"


add_commands(
    app,
    "clock",
    operations,
    prints={
        operations.GET_CLOCK: _print_clock,
        operations.ADVANCE_CLOCK: _print_clock,
        operations.PLAY_CLOCK: _print_clock,
        operations.RESUME_CLOCK: _print_clock,
        operations.PAUSE_CLOCK: _print_clock,
    },
    calls={
        operations.ADVANCE_CLOCK: ControlClient.advance,
        operations.PLAY_CLOCK: ControlClient.play,
    },
)

"""A machine's events on a terminal: a table whose countdowns tick by the service's clock, the last
changes beneath, and how it stands with the endpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from forewarn.cli.commands.watch_state import WatchState
from forewarn.cli.commands.watch_text import COLUMNS, ChangeLine, moment, row
from forewarn.client import EndpointStatus, Event
from forewarn.support.text import visible

TICKS = 1  # in a second
SHOWN_CHANGES = 8
SHOWN_EVENTS = 30
FIRST = ("TYPE", "STARTS", "", "MACHINES", "STATUS", "NOT BEFORE", "DESCRIPTION", "EVENT", "SOURCE")
"""Which columns there are where there is not room for all."""
LEAST_ROOM = {"MACHINES": 10, "DESCRIPTION": 20}  # for what may be cut
BETWEEN = 3  # blanks

_STYLES = {"appeared": "yellow", "started": "red", "finished": "green", "withdrawn": "green"}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that is to be seen."""

    events: tuple[tuple[Event, bool], ...] | None = None  # and whether each is this machine's
    changes: tuple[ChangeLine, ...] = ()
    machine: str = ""


def live(watching: WatchState) -> None:
    """Until it is interrupted."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    client = watching.client
    view = View()
    changes: deque[ChangeLine] = deque(maxlen=SHOWN_CHANGES)

    def seen() -> Any:
        return picture(view, client.status, client.now(), console.width)

    with Live(get_renderable=seen, refresh_per_second=TICKS, console=console) as shown:
        for look, told in watching.snapshots():
            changes.extend(told)
            listed = [e for e in look.document.events if watching.is_wanted(e.resources)]
            view = View(
                events=tuple((event, watching.is_mine(event.resources)) for event in listed),
                changes=tuple(changes),
                machine=watching.identity.name if watching.identity else "",
            )
            if told:
                shown.refresh()


def picture(view: View, standing: EndpointStatus, now: datetime, width: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [_head(view, standing, now)]
    if view.events:
        parts.append(_table(view.events, now, width))
    elif view.events is not None:
        parts.append(Text("no events", style="dim"))
    for told in view.changes:
        style = _STYLES.get(told.change.kind, "")
        parts.append(Text(visible(str(told)), style=style, no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _head(view: View, standing: EndpointStatus, now: datetime) -> Any:
    from rich.text import Text

    head = Text()
    head.append(visible(view.machine or "this machine"), style="bold")
    where = standing.endpoint or "looking for an endpoint"
    how = "long-polls" if standing.long_poll else "polling"
    head.append(f"  {where}  {standing.version}  {how}  {moment(now)}", style="dim")
    if standing.problem and standing.failures:
        trouble = f"trouble since {moment(standing.since)}: {standing.problem}"
        head.append("\n" + visible(trouble), style="red")
    return head


def _table(events: Sequence[tuple[Event, bool]], now: datetime, width: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = [[visible(cell) for cell in row(event, mine, now)] for event, mine in events]
    rows = rows[:SHOWN_EVENTS]
    kept = _with_room(rows, width)
    made = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for place, room in kept:
        made.add_column(COLUMNS[place], width=room, no_wrap=True, overflow="ellipsis")
    for (event, mine), cells in zip(events, rows, strict=False):
        style = "bold red" if event.started and mine else "bold yellow" if mine else ""
        made.add_row(*(Text(cells[place]) for place, _ in kept), style=style)
    if len(events) > SHOWN_EVENTS:
        made.caption = f"and {len(events) - SHOWN_EVENTS} more"
    return made


def _with_room(rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Which columns, from left to right, fit beside each other, and how wide each is; the first
    of them is always there."""
    from rich.cells import cell_len

    left = width - BETWEEN
    wanted = {
        name: max(1, cell_len(name), *(cell_len(cells[place]) for cells in rows))
        for place, name in enumerate(COLUMNS)
    }
    rooms: dict[str, int] = {}
    for name in FIRST:
        room = min(wanted[name], LEAST_ROOM.get(name, wanted[name]))
        if rooms and left < room + BETWEEN:
            break
        rooms[name] = room
        left -= room + BETWEEN
    for name in filter(rooms.__contains__, LEAST_ROOM):  # what is left over
        more = max(0, min(left, wanted[name] - rooms[name]))
        rooms[name] += more
        left -= more
    return [(place, rooms[name]) for place, name in enumerate(COLUMNS) if name in rooms]

"""The live view of `forewarn watch` on a terminal: a table with countdowns by the service's clock,
the last changes below it, and the status of the endpoint."""

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

REFRESHES = 1  # per second
SHOWN_CHANGES = 8
SHOWN_EVENTS = 30
# The columns by importance: where there is not room for all, the last ones are left out.
BY_IMPORTANCE = (
    *("TYPE", "STARTS", "", "MACHINES", "STATUS", "NOT BEFORE", "DESCRIPTION", "EVENT", "SOURCE"),
)
LEAST_WIDTH = {"MACHINES": 10, "DESCRIPTION": 20}  # of columns that may be truncated
GAP = 3  # blanks between two columns

_STYLES = {
    "appeared": "yellow",
    "rescheduled": "yellow",
    "started": "red",
    "finished": "green",
    "withdrawn": "green",
}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown."""

    events: tuple[tuple[Event, bool], ...] | None = None  # and whether each is this machine's
    changes: tuple[ChangeLine, ...] = ()
    machine: str = ""


def live(state: WatchState) -> None:
    """Show the live view until it is interrupted."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    client = state.client
    view = View()
    last_changes: deque[ChangeLine] = deque(maxlen=SHOWN_CHANGES)

    def render() -> Any:
        return picture(view, client.status, client.now(), console.width)

    with Live(get_renderable=render, refresh_per_second=REFRESHES, console=console) as display:
        for snapshot, changes in state.snapshots():
            last_changes.extend(changes)
            events = [e for e in snapshot.document.events if state.is_wanted(e)]
            view = View(
                events=tuple((event, state.is_mine(event)) for event in events),
                changes=tuple(last_changes),
                machine=state.identity.name if state.identity else "",
            )
            if changes:
                display.refresh()


def picture(view: View, status: EndpointStatus, now: datetime, width: int) -> Any:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [_head(view, status, now)]
    if view.events:
        parts.append(_table(view.events, now, width))
    elif view.events is not None:
        parts.append(Text("no events", style="dim"))
    for line in view.changes:
        style = _STYLES.get(line.change.kind, "")
        parts.append(Text(visible(str(line)), style=style, no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _head(view: View, status: EndpointStatus, now: datetime) -> Any:
    from rich.text import Text

    head = Text()
    head.append(visible(view.machine or "this machine"), style="bold")
    where = status.endpoint or "looking for an endpoint"
    mode = "long-polling" if status.long_poll else "polling"
    head.append(f"  {where}  {status.version}  {mode}  {moment(now)}", style="dim")
    if status.problem and status.failures:
        trouble = f"trouble since {moment(status.since)}: {status.problem}"
        head.append("\n" + visible(trouble), style="red")
    return head


def _table(events: Sequence[tuple[Event, bool]], now: datetime, width: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = [[visible(cell) for cell in row(event, mine, now)] for event, mine in events]
    rows = rows[:SHOWN_EVENTS]
    columns = _fitting_columns(rows, width)
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for index, column_width in columns:
        table.add_column(COLUMNS[index], width=column_width, no_wrap=True, overflow="ellipsis")
    for (event, mine), cells in zip(events, rows, strict=False):
        style = "bold red" if event.started and mine else "bold yellow" if mine else ""
        table.add_row(*(Text(cells[index]) for index, _ in columns), style=style)
    if len(events) > SHOWN_EVENTS:
        table.caption = f"and {len(events) - SHOWN_EVENTS} more"
    return table


def _fitting_columns(rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Return the columns that fit beside each other, from left to right, each as its index and its
    width. The most important one is always included."""
    from rich.cells import cell_len

    left = width - GAP
    full_widths = {
        name: max(1, cell_len(name), *(cell_len(cells[index]) for cells in rows))
        for index, name in enumerate(COLUMNS)
    }
    widths: dict[str, int] = {}
    for name in BY_IMPORTANCE:
        least = min(full_widths[name], LEAST_WIDTH.get(name, full_widths[name]))
        if widths and left < least + GAP:
            break
        widths[name] = least
        left -= least + GAP
    for name in filter(widths.__contains__, LEAST_WIDTH):  # distribute the remaining space
        more = max(0, min(left, full_widths[name] - widths[name]))
        widths[name] += more
        left -= more
    return [(index, widths[name]) for index, name in enumerate(COLUMNS) if name in widths]

"""The picture in a terminal: `live`, drawn anew as things happen, and `text`, for anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from forewarn.support.text import visible
from forewarn.testing.timeline.axis import Axis, axis_of, exact, length, of_day
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN, choose
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.terminal_lane import EMPTY, SHAPES, cells, state
from forewarn.testing.timeline.values import Lane, Picture

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

NARROWEST = 60  # columns; where there are fewer, lines are longer than the terminal is wide
WITH_STATE = 90  # from this width on, a column says how things stand
STATE = 24
LABEL_LEAST, LABEL_MOST = 8, 24
SENTENCES = 3  # about what changed last

Piece: TypeAlias = tuple[str, str]  # what to write, and in which style
Row: TypeAlias = list[Piece]


class Live:
    """A Rich renderable: whenever it is rendered, it is as things stand then."""

    def __init__(self, lanes: Lanes, title: str, all_of_it: bool) -> None:
        self._lanes = lanes
        self._title = title
        self._all = all_of_it

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width, picture = max(options.max_width, NARROWEST), self._lanes.picture()
        height = None if self._all else options.height or console.height
        room = MAX_DRAWN if height is None else min(height, MAX_DRAWN)
        made = list(rows(picture, width, room, options.ascii_only, self._title))
        while height is not None and len(made) >= height and room > 1:
            room = max(room - (len(made) - height + 1), 1)
            made = list(rows(picture, width, room, options.ascii_only, self._title))
        for row in made:
            line = Text(no_wrap=True, overflow="crop", end="\n")
            for said, style in row:
                line.append(said, style)
            yield line


def live(lanes: Lanes, title: str = "", all_of_it: bool = False) -> Live:
    """What `rich.live.Live` can show while `lanes` hears: as many machines as fit on the screen,
    those that something happened to first; or all of it, where one can scroll."""
    return Live(lanes, title, all_of_it)


def text(lanes: Lanes, title: str = "", width: int = 100, ascii_only: bool = False) -> str:
    """The same without a terminal: plain lines."""
    made = rows(lanes.picture(), max(width, NARROWEST), MAX_DRAWN, ascii_only, title)
    return "\n".join("".join(said for said, _ in row).rstrip() for row in made) + "\n"


def rows(
    picture: Picture, width: int, room: int, ascii_only: bool = False, title: str = ""
) -> Iterator[Row]:
    """Line by line: the time, the axis, the lanes, what they mean, what changed last."""
    if not picture.recorded:
        yield [("nothing has happened yet", "dim")]
        return
    axis = axis_of(picture)
    chosen = choose(picture, room)
    named = [len(lane.machine) for lane in chosen.lanes]
    label = min(max([LABEL_LEAST, *named]), LABEL_MOST if width >= WITH_STATE else 16)
    beside = STATE + 2 if width >= WITH_STATE else 0
    across = width - label - 2 - beside
    lasted = length(picture.now - picture.begins)
    heading = f"{visible(title)}  " if title else ""
    yield [(heading, "bold"), (f"{exact(picture.now)}, {lasted or '0 s'} in", "")]
    yield [(" " * (label + 2), ""), (_scale(axis, across), "dim")]
    used: set[str] = set()
    several = len(chosen.groups) > 1 and len(chosen.lanes) + len(chosen.groups) <= room
    for group, lanes in chosen.groups:
        if several and group and [lane.machine for lane in lanes] != [group]:
            yield [(fit(group, label + 2), "bold dim")]
        for lane in lanes:
            row, shapes = _lane(lane, picture, axis, label, across, ascii_only)
            used |= shapes
            if beside:
                row += [("  ", ""), (fit(state(lane, picture), STATE), "")]
            yield row
    if chosen.rest:
        yield [(chosen.rest, "dim")]
    yield from _legend(used, width, ascii_only)
    newest = [(of_day(t), says) for t, says in list(picture.newest)[-SENTENCES:]]
    stamp = max((len(at) for at, _ in newest), default=0)
    for at, says in newest:
        yield [(f"{at:{stamp}}  ", "dim"), (fit(says, max(width - 15, 20)).rstrip(), "")]


def fit(said: str, width: int) -> str:
    """Exactly so many columns, whatever is in it."""
    from rich.cells import cell_len, set_cell_size

    said = visible(said)
    if cell_len(said) > width:
        return set_cell_size(set_cell_size(said, width - 1).rstrip() + "…", width)
    return set_cell_size(said, width)


def _lane(
    lane: Lane, picture: Picture, axis: Axis, label: int, across: int, ascii_only: bool
) -> tuple[Row, set[str]]:
    row: Row = [(fit(lane.machine, label), "dim" if lane.quiet else "bold"), ("  ", "")]
    made = cells(lane, picture, axis, across)
    start = 0
    for at in range(1, across + 1):
        if at == across or made[at] != made[start]:
            shape = SHAPES.get(made[start])
            if shape is None:
                row.append((" " * (at - start), ""))
            else:
                sign = shape.plain if ascii_only else shape.sign
                row.append((sign * (at - start), shape.style))
            start = at
    return row, set(made) - {EMPTY}


def _scale(axis: Axis, across: int) -> str:
    """The times, where there is room for them; how much was left out in between comes first."""
    line = [" "] * across
    said: list[tuple[int, str]] = []
    for start, end in axis.folds:
        label = f"~{length(end - start)}~"
        middle = int((axis.share(start) + axis.share(end)) / 2 * across)
        said.append((min(max(middle - len(label) // 2, 0), across - len(label)), label))
    for t, label in axis.ticks(max(across // 12, 2)):
        said.append((min(int(axis.share(t) * across), across - 1), f"|{label}"))
    for at, label in said:
        around = line[max(at - 1, 0) : at + len(label) + 1]
        if 0 <= at <= across - len(label) and set(around) == {" "}:
            line[at : at + len(label)] = label
    return "".join(line)


def _legend(used: set[str], width: int, ascii_only: bool) -> Iterator[Row]:
    """What the signs mean that are to be seen, and no others."""
    row: Row = []
    taken = 0
    for name, shape in SHAPES.items():
        if name not in used:
            continue
        sign = shape.plain if ascii_only else shape.sign
        if row and taken + len(shape.means) + 5 > width:
            yield row
            row, taken = [], 0
        row += [(sign, shape.style), (f" {shape.means}   ", "dim")]
        taken += len(shape.means) + 5
    if row:
        yield row

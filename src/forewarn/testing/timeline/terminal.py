"""The timeline as characters: `live` for a terminal, and `text` for plain text files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from forewarn.support.text import counted, visible
from forewarn.testing.timeline.axis import Axis, axis_of, duration, exact, moment
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN, choose
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.terminal_lane import EMPTY, SHAPES, cells, state
from forewarn.testing.timeline.values import Lane, Picture, ScenarioOutcome

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

MIN_WIDTH = 60  # columns; on narrower terminals the lines are cropped
WIDTH_WITH_STATE = 90  # columns from which each lane ends with the state of its machine
STATE_WIDTH = 24
MIN_LABEL, MAX_LABEL = 8, 24  # columns of the machines' names
MAX_FAILURES = 5  # of a scenario
MAX_SENTENCES = 3  # of the latest changes

Piece: TypeAlias = tuple[str, str]  # text and style
Row: TypeAlias = list[Piece]


class Live:
    """A Rich renderable that draws the current picture whenever it is rendered."""

    def __init__(self, lanes: Lanes, title: str, full: bool) -> None:
        self._lanes = lanes
        self._title = title
        self._full = full

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width, picture = max(options.max_width, MIN_WIDTH), self._lanes.picture()
        height = None if self._full else options.height or console.height
        room = MAX_DRAWN if height is None else min(height, MAX_DRAWN)
        lines = list(rows(picture, width, room, options.ascii_only, self._title))
        while height is not None and len(lines) >= height and room > 1:
            room = max(room - (len(lines) - height + 1), 1)
            lines = list(rows(picture, width, room, options.ascii_only, self._title))
        for row in lines:
            line = Text(no_wrap=True, overflow="crop", end="\n")
            for piece, style in row:
                line.append(piece, style)
            yield line


def live(lanes: Lanes, title: str = "", full: bool = False) -> Live:
    """Return a renderable for `rich.live.Live` that follows the lanes.

    It shows as many machines as fit on the screen, those with events first.

    Args:
        lanes: What to draw.
        title: A title above it.
        full: Show all machines that a picture can hold.
    """
    return Live(lanes, title, full)


def text(lanes: Lanes, title: str = "", width: int = 100, ascii_only: bool = False) -> str:
    """Return the timeline as plain text.

    Args:
        lanes: What to draw.
        title: A title above it.
        width: The width in characters.
        ascii_only: Use no characters beyond ASCII.
    """
    lines = rows(lanes.picture(), max(width, MIN_WIDTH), MAX_DRAWN, ascii_only, title)
    return "\n".join("".join(piece for piece, _ in row).rstrip() for row in lines) + "\n"


def rows(
    picture: Picture, width: int, room: int, ascii_only: bool = False, title: str = ""
) -> Iterator[Row]:
    """Yield the lines: time, axis, lanes, legend and latest changes."""
    if not picture.recorded:
        yield [("nothing has happened yet", "dim")]
        return
    axis = axis_of(picture)
    chosen = choose(picture, room)
    lengths = [len(lane.machine) for lane in chosen.lanes]
    label = min(max([MIN_LABEL, *lengths]), MAX_LABEL if width >= WIDTH_WITH_STATE else 16)
    state_width = STATE_WIDTH + 2 if width >= WIDTH_WITH_STATE else 0
    columns = width - label - 2 - state_width
    elapsed_time = duration(picture.now - picture.begins)
    heading = f"{visible(title)}  " if title else ""
    yield [(heading, "bold"), (f"{exact(picture.now)}, {elapsed_time or '0 s'} in", "")]
    for scenario in picture.scenarios:
        yield from _rows_of(scenario, width, ascii_only)
    yield [(" " * (label + 2), ""), (_scale(axis, columns), "dim")]
    used_shapes: set[str] = set()
    with_groups = len(chosen.groups) > 1 and len(chosen.lanes) + len(chosen.groups) <= room
    for group, lanes in chosen.groups:
        if with_groups and group and [lane.machine for lane in lanes] != [group]:
            yield [(fit(group, label + 2), "bold dim")]
        for lane in lanes:
            row, shapes = _lane(lane, picture, axis, label, columns, ascii_only)
            used_shapes |= shapes
            if state_width:
                row += [("  ", ""), (fit(state(lane, picture), STATE_WIDTH), "")]
            yield row
    if chosen.remainder:
        yield [(chosen.remainder, "dim")]
    if picture.dropped_events:
        yield [(f"only the last {len(picture.events):,} events are shown", "dim")]
    yield from _legend(used_shapes, width, ascii_only)
    changes = [
        (moment(t, picture.now), message)
        for t, message in list(picture.latest_changes)[-MAX_SENTENCES:]
    ]
    stamp = max((len(at) for at, _ in changes), default=0)
    for at, message in changes:
        yield [(f"{at:{stamp}}  ", "dim"), (fit(message, max(width - stamp - 2, 20)).rstrip(), "")]


def _rows_of(scenario: ScenarioOutcome, width: int, ascii_only: bool) -> Iterator[Row]:
    """Yield the result of a scenario, and what failed."""
    yield [(fit(outcome(scenario), width).rstrip(), "" if scenario.ok else "bold red")]
    if scenario.ok:
        return
    for failure in scenario.failures[:MAX_FAILURES]:
        yield [("  x " if ascii_only else "  ✗ ", "red"), (fit(failure, width - 4).rstrip(), "")]
    if (more := len(scenario.failures) - MAX_FAILURES) > 0:
        yield [(f"  … and {more:,} more", "dim")]


def outcome(scenario: ScenarioOutcome) -> str:
    """Return whether a scenario passed, in a line."""
    if not scenario.ok:
        missed = sum(not item.ok for item in scenario.expectations)
        expected = counted(len(scenario.expectations), "expectation")
        of_all = f": {missed:,} of {expected} not met" if missed else ""
        return f"scenario {scenario.scenario} failed{of_all}"
    if not scenario.expectations:
        return f"scenario {scenario.scenario} expects nothing"
    return f"scenario {scenario.scenario} passed"


def fit(text: str, width: int) -> str:
    """Pad or crop a text to exactly `width` columns."""
    from rich.cells import cell_len, set_cell_size

    text = visible(text)
    if cell_len(text) > width:
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return set_cell_size(text, width)


def _lane(
    lane: Lane, picture: Picture, axis: Axis, label: int, columns: int, ascii_only: bool
) -> tuple[Row, set[str]]:
    row: Row = [(fit(lane.machine, label), "dim" if lane.quiet else "bold"), ("  ", "")]
    shape_names = cells(lane, picture, axis, columns)
    start = 0
    for at in range(1, columns + 1):
        if at == columns or shape_names[at] != shape_names[start]:
            shape = SHAPES.get(shape_names[start])
            if shape is None:
                row.append((" " * (at - start), ""))
            else:
                sign = shape.plain if ascii_only else shape.sign
                row.append((sign * (at - start), shape.style))
            start = at
    return row, set(shape_names) - {EMPTY}


def _scale(axis: Axis, columns: int) -> str:
    """Return the line of the axis: durations of folds first, then times where there is room."""
    line = [" "] * columns
    labels: list[tuple[int, str]] = []
    for start, end in axis.folds:
        label = f"~{duration(end - start)}~"
        middle = int((axis.share(start) + axis.share(end)) / 2 * columns)
        labels.append((min(max(middle - len(label) // 2, 0), columns - len(label)), label))
    for t, label in axis.ticks(max(columns // 12, 2)):
        labels.append((min(int(axis.share(t) * columns), columns - 1), f"|{label}"))
    for at, label in labels:
        around = line[max(at - 1, 0) : at + len(label) + 1]
        if 0 <= at <= columns - len(label) and set(around) == {" "}:
            line[at : at + len(label)] = label
    return "".join(line)


def _legend(used_shapes: set[str], width: int, ascii_only: bool) -> Iterator[Row]:
    """Yield the legend of the shapes that occur in the picture."""
    row: Row = []
    columns = 0
    for name, shape in SHAPES.items():
        if name not in used_shapes:
            continue
        sign = shape.plain if ascii_only else shape.sign
        if row and columns + len(shape.meaning) + 5 > width:
            yield row
            row, columns = [], 0
        row += [(sign, shape.style), (f" {shape.meaning}   ", "dim")]
        columns += len(shape.meaning) + 5
    if row:
        yield row

"""`svg`: the timeline as one self-contained SVG, for light and dark, readable without colours.

The layout is decided here; `lane` draws one machine, `symbols` the symbols.
"""

from __future__ import annotations

from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import Axis, axis_of, duration, exact
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN, choose
from forewarn.testing.timeline.drawing import symbols
from forewarn.testing.timeline.drawing.lane import LEFT, RIGHT, LaneDrawing, crop, text_width, x_of
from forewarn.testing.timeline.drawing.markup import escape, number, tag
from forewarn.testing.timeline.drawing.style import COLOURS, PICTURE
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.values import Picture

WIDTH = RIGHT + 24
# All lengths are in pixels.
TOP = 104.0  # of the first lane
TITLE_HEIGHT = 58.0  # cut off if the drawing has no heading
GROUP_HEIGHT, GROUP_GAP, FOOT, LEGEND_STEP = 24.0, 6.0, 16.0, 24.0
MAX_TICKS = 9  # labelled times on the axis
MAX_OUTCOMES = 1  # results of scenarios in the heading
TITLE = "Scheduled events"


def svg(lanes: Lanes, title: str = TITLE, at_most: int = MAX_DRAWN) -> str:
    """Return the timeline as an SVG document.

    Args:
        lanes: What to draw.
        title: The title of the drawing; by default `Scheduled events`.
        at_most: How many lanes to draw, by default 40; the other machines are only counted.
    """
    return draw(lanes.picture(), title, at_most)


def draw(
    picture: Picture, title: str = TITLE, at_most: int = MAX_DRAWN, headed: bool = True
) -> str:
    """Draw a picture. The title is always there for screen readers, and visible if `headed`."""
    axis = axis_of(picture)
    chosen = choose(picture, at_most)
    bands: list[str] = []
    elements: list[str] = []
    used_symbols: set[str] = set()
    y = TOP
    with_groups = len(chosen.groups) > 1
    for group, members in chosen.groups:
        if with_groups and group and [lane.machine for lane in members] != [group]:
            elements.append(tag("text", escape(crop(group, 40)), x=16, y=y + 16, class_="group"))
            y += GROUP_HEIGHT
        for index, lane in enumerate(members):
            lane_drawing = LaneDrawing(lane, picture, axis)
            bands += [lane_drawing.band(y)] if index % 2 == 0 else []
            elements.append(lane_drawing.draw(y))
            used_symbols |= lane_drawing.used
            y += lane_drawing.height
        y += GROUP_GAP
    if chosen.remainder:
        elements.append(tag("text", escape(chosen.remainder), x=16, y=y + 18, class_="soft"))
        y += GROUP_HEIGHT
    bottom = y
    outages = _outages(picture, axis, bottom)
    used_symbols |= {"away"} if outages else set()
    legend, y = _legend(used_symbols, y + FOOT)
    top = 0.0 if headed else TITLE_HEIGHT
    title_text = escape(title)
    content = [
        tag("title", title_text, id="timeline-title"),
        tag("desc", escape(wording.description(picture)), id="timeline-desc"),
        tag("style", COLOURS + PICTURE),
        _patterns(),
        tag("rect", width=WIDTH, height=y, class_="paper"),
        *(_heading(picture, title) if headed else ()),
        *bands,
        _grid(axis, bottom),
        *elements,
        *outages,
        *_folds(axis, bottom),
        _now(picture, axis, bottom),
        legend,
    ]
    return tag(
        "svg",
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 {number(top)} {number(WIDTH)} {number(y - top)}",
        width=WIDTH,
        height=y - top,
        class_="timeline",
        role="img",
        aria_labelledby="timeline-title timeline-desc",
    )


def _heading(picture: Picture, title: str) -> tuple[str, ...]:
    summary = wording.heading(picture) if picture.recorded else "nothing has happened yet"
    return (
        tag("text", escape(crop(title, 90)), x=16, y=34, class_="title"),
        tag("text", *_outcomes(picture), escape(summary), x=16, y=56, class_="soft"),
    )


def _outcomes(picture: Picture) -> list[str]:
    """Return the results of scenarios, those that failed first; the others if there is room."""
    failed = [item for item in picture.scenarios if not item.ok]
    shown = failed or list(picture.scenarios)
    elements = []
    for scenario in shown[:MAX_OUTCOMES]:
        sign = "✗ " if not scenario.ok else "✓ " if scenario.expectations else ""
        kind = "failed" if not scenario.ok else None
        text = f"{sign}{crop(wording.outcome(scenario), 90)}"
        elements += [tag("tspan", escape(text), class_=kind), " · "]
    return elements


def _patterns() -> str:
    hatch = tag("rect", width=6, height=6, class_="hatch")
    hatch += tag("path", d="M-1 7L7-1M-1 1L1-1M5 7L7 5", class_="hatch-line")
    away = tag("path", d="M-1 9L9-1M-1 1L1-1M7 9L9 7", class_="away-line")
    size = {"patternUnits": "userSpaceOnUse"}
    return tag(
        "defs",
        tag("pattern", hatch, id="hatch", width=6, height=6, **size),
        tag("pattern", away, id="away", width=8, height=8, **size),
    )


def _grid(axis: Axis, bottom: float) -> str:
    elements = []
    free_from = 0.0
    for t, label in axis.ticks(MAX_TICKS):
        x = x_of(axis, t)
        elements.append(tag("path", d=f"M{number(x)} 92V{number(bottom)}", class_="grid"))
        width = text_width(label)
        start = min(max(x - width / 2, LEFT - 8), RIGHT + 20 - width)
        if start >= free_from:
            elements.append(tag("text", escape(label), x=start, y=86, class_="axis"))
            free_from = start + width + 8
    elements.append(tag("text", "UTC", x=LEFT - 40, y=86, class_="axis"))
    return tag("g", *elements, aria_hidden="true")


def _folds(axis: Axis, bottom: float) -> list[str]:
    """Draw a jagged line for each gap that is folded."""
    return [
        _fold((x_of(axis, start) + x_of(axis, end)) / 2, bottom, duration(end - start))
        for start, end in axis.folds
    ]


def _fold(middle: float, bottom: float, length_text: str) -> str:
    teeth = "".join("l5 6l-10 12l5 6" for _ in range(int((bottom - 92) / 24)))
    return symbols.titled(
        f"{length_text} without activity are left out",
        tag("path", d=f"M{number(middle)} 92{teeth}", class_="fold"),
        tag("text", escape(f"… {length_text} …"), x=middle, y=72, class_="axis folded"),
    )


def _outages(picture: Picture, axis: Axis, bottom: float) -> list[str]:
    elements = []
    for outage in picture.outages:
        x = x_of(axis, outage.start)
        width = max(x_of(axis, outage.end) - x, 2.0)
        box = tag("rect", x=x, y=92, width=width, height=bottom - 92, class_="away")
        tooltip = f"{outage.message}: {exact(outage.start)} to {exact(outage.end)}"
        elements.append(symbols.titled(tooltip, box))
    return elements


def _now(picture: Picture, axis: Axis, bottom: float) -> str:
    if axis.ends <= picture.now or not picture.recorded or picture.ends <= picture.now:
        return ""
    x = x_of(axis, picture.now)
    line = tag("path", d=f"M{number(x)} 74V{number(bottom)}", class_="now")
    label = tag("text", "now", x=x - 4, y=74, class_="axis before")
    return symbols.titled(f"the end of the recording: {exact(picture.now)}", line, label)


def _legend(used_symbols: set[str], y: float) -> tuple[str, float]:
    """Return the legend of the symbols that occur in the drawing, and the bottom of the drawing."""
    elements = []
    x, y = 26.0, y + 8
    for kind, meaning in symbols.LEGEND:
        if kind not in used_symbols:
            continue
        width = text_width(meaning) * 1.1 + 36
        if x + width > RIGHT and x > 26:
            x, y = 26.0, y + LEGEND_STEP
        elements.append(symbols.sample(kind, x, y))
        elements.append(tag("text", meaning, x=x + 15, y=y + 4, class_="soft"))
        x += width
    return tag("g", *elements) if elements else "", y + 22

"""`svg`: the picture as one self-contained SVG, for light and dark, readable without colours.

Where things stand is decided here; what a lane looks like is in `strips`, the signs in `signs`.
"""

from __future__ import annotations

from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import Axis, axis_of, exact, length
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN, choose
from forewarn.testing.timeline.drawing import symbols
from forewarn.testing.timeline.drawing.lane import LEFT, RIGHT, LaneDrawing, clipped, extent, x_of
from forewarn.testing.timeline.drawing.markup import escape, number, tag
from forewarn.testing.timeline.drawing.style import COLOURS, PICTURE
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.values import Picture

WIDTH = RIGHT + 24
TOP, UNHEADED = 104.0, 58.0  # where the lanes begin; what is cut off without a heading
HEADING, BETWEEN, FOOT, LEGEND_STEP = 24.0, 6.0, 16.0, 24.0
TICKS = 9  # times on the axis at most
TITLE = "Scheduled events"


def svg(lanes: Lanes, title: str = TITLE, at_most: int = MAX_DRAWN) -> str:
    return draw(lanes.picture(), title, at_most)


def draw(
    picture: Picture, title: str = TITLE, at_most: int = MAX_DRAWN, headed: bool = True
) -> str:
    """`headed`: with its title to be seen; it is always there to be read aloud."""
    axis = axis_of(picture)
    chosen = choose(picture, at_most)
    bands: list[str] = []
    drawn: list[str] = []
    used: set[str] = set()
    y = TOP
    several = len(chosen.groups) > 1
    for group, members in chosen.groups:
        if several and group and [lane.machine for lane in members] != [group]:
            drawn.append(tag("text", escape(clipped(group, 40)), x=16, y=y + 16, class_="group"))
            y += HEADING
        for at, lane in enumerate(members):
            strip = LaneDrawing(lane, picture, axis)
            bands += [strip.band(y)] if at % 2 == 0 else []
            drawn.append(strip.drawn(y))
            used |= strip.used
            y += strip.height
        y += BETWEEN
    if chosen.rest:
        drawn.append(tag("text", escape(chosen.rest), x=16, y=y + 18, class_="soft"))
        y += HEADING
    bottom = y
    away = _away(picture, axis, bottom)
    used |= {"away"} if away else set()
    legend, y = _legend(used, y + FOOT)
    cut = 0.0 if headed else UNHEADED
    said = escape(title)
    inside = [
        tag("title", said, id="timeline-title"),
        tag("desc", escape(wording.description(picture)), id="timeline-desc"),
        tag("style", COLOURS + PICTURE),
        _patterns(),
        tag("rect", width=WIDTH, height=y, class_="paper"),
        *(_heading(picture, title) if headed else ()),
        *bands,
        _grid(axis, bottom),
        *drawn,
        *away,
        *_folds(axis, bottom),
        _now(picture, axis, bottom),
        legend,
    ]
    return tag(
        "svg",
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 {number(cut)} {number(WIDTH)} {number(y - cut)}",
        width=WIDTH,
        height=y - cut,
        class_="timeline",
        role="img",
        aria_labelledby="timeline-title timeline-desc",
    )


def _heading(picture: Picture, title: str) -> tuple[str, ...]:
    said = wording.heading(picture) if picture.recorded else "nothing has happened yet"
    return (
        tag("text", escape(clipped(title, 90)), x=16, y=34, class_="title"),
        tag("text", escape(said), x=16, y=56, class_="soft"),
    )


def _patterns() -> str:
    hatch = tag("rect", width=6, height=6, class_="hatch")
    hatch += tag("path", d="M-1 7L7-1M-1 1L1-1M5 7L7 5", class_="hatch-line")
    gone = tag("path", d="M-1 9L9-1M-1 1L1-1M7 9L9 7", class_="gone-line")
    size = {"patternUnits": "userSpaceOnUse"}
    return tag(
        "defs",
        tag("pattern", hatch, id="hatch", width=6, height=6, **size),
        tag("pattern", gone, id="gone", width=8, height=8, **size),
    )


def _grid(axis: Axis, bottom: float) -> str:
    made = []
    taken = 0.0
    for t, label in axis.ticks(TICKS):
        x = x_of(axis, t)
        made.append(tag("path", d=f"M{number(x)} 92V{number(bottom)}", class_="grid"))
        wide = extent(label)
        start = min(max(x - wide / 2, LEFT - 8), RIGHT + 20 - wide)
        if start >= taken:
            made.append(tag("text", escape(label), x=start, y=86, class_="axis"))
            taken = start + wide + 8
    made.append(tag("text", "UTC", x=LEFT - 40, y=86, class_="axis"))
    return tag("g", *made, aria_hidden="true")


def _folds(axis: Axis, bottom: float) -> list[str]:
    """A broken line where much time has been left out."""
    return [
        _fold((x_of(axis, start) + x_of(axis, end)) / 2, bottom, length(end - start))
        for start, end in axis.folds
    ]


def _fold(middle: float, bottom: float, lasts: str) -> str:
    teeth = "".join("l5 6l-10 12l5 6" for _ in range(int((bottom - 92) / 24)))
    return symbols.titled(
        f"{lasts} in which nothing happens are left out",
        tag("path", d=f"M{number(middle)} 92{teeth}", class_="fold"),
        tag("text", escape(f"… {lasts} …"), x=middle, y=72, class_="axis folded"),
    )


def _away(picture: Picture, axis: Axis, bottom: float) -> list[str]:
    made = []
    for away in picture.away:
        x = x_of(axis, away.start)
        wide = max(x_of(axis, away.end) - x, 2.0)
        box = tag("rect", x=x, y=92, width=wide, height=bottom - 92, class_="away")
        says = f"{away.says}: {exact(away.start)} to {exact(away.end)}"
        made.append(symbols.titled(says, box))
    return made


def _now(picture: Picture, axis: Axis, bottom: float) -> str:
    if axis.ends <= picture.now or not picture.recorded or picture.ends <= picture.now:
        return ""
    x = x_of(axis, picture.now)
    line = tag("path", d=f"M{number(x)} 74V{number(bottom)}", class_="now")
    said = tag("text", "now", x=x - 4, y=74, class_="axis before")
    return symbols.titled(f"the recording ends here: {exact(picture.now)}", line, said)


def _legend(used: set[str], y: float) -> tuple[str, float]:
    """What the signs mean that are to be seen; and where the picture ends."""
    made = []
    x, y = 26.0, y + 8
    for kind, means in symbols.LEGEND:
        if kind not in used:
            continue
        wide = extent(means) * 1.1 + 36
        if x + wide > RIGHT and x > 26:
            x, y = 26.0, y + LEGEND_STEP
        made.append(symbols.sample(kind, x, y))
        made.append(tag("text", means, x=x + 15, y=y + 4, class_="soft"))
        x += wide
    return tag("g", *made) if made else "", y + 22

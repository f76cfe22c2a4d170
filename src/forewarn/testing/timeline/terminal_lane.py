"""One lane as characters: what stands in which column. The shapes say it; colours only help."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from forewarn.testing.timeline.axis import Axis, length
from forewarn.testing.timeline.values import EventBar, Lane, Picture

EMPTY = ""


class Shape(msgspec.Struct, frozen=True):
    sign: str
    plain: str  # where only ASCII can be shown
    style: str
    means: str


# In the order of the legend. Later ones are painted over earlier ones.
SHAPES: Mapping[str, Shape] = {
    "poll": Shape("·", ".", "dim", "poll"),
    "away": Shape("╱", "/", "magenta", "service away"),
    "scheduled": Shape("░", "-", "yellow", "Scheduled, not seen yet"),
    "seen": Shape("▒", "=", "yellow", "Scheduled and seen"),
    "started": Shape("█", "#", "blue", "Started"),
    "due": Shape("┊", "|", "bold", "NotBefore"),
    "impact": Shape("◆", "*", "bold red", "impact"),
    "withdrawn": Shape("×", "x", "bold", "withdrawn"),
    "approves": Shape("»", ">", "green", "approved another's"),
    "approved": Shape("✓", "A", "bold green", "approved"),
    "ready": Shape("r", "r", "green", "ready or not"),
    "refused": Shape("?", "?", "bold red", "refused"),
    "fault": Shape("!", "!", "bold magenta", "fault"),
}


def cells(lane: Lane, picture: Picture, axis: Axis, width: int) -> list[str]:
    """The name of a shape for each column, or EMPTY."""
    made = [EMPTY] * width

    def column(t: float) -> int:
        return min(int(axis.share(t) * width), width - 1)

    def fill(start: float, end: float, shape: str) -> None:
        for at in range(column(start), column(end) + 1):
            made[at] = shape

    for tick in lane.ticks:
        fill(tick.start, tick.end, "poll")
    for away in picture.away:
        fill(away.start, away.end, "away")
    known = picture.by_id
    mine = [known[id] for id in lane.events if id in known]
    for event in mine:
        _stretches(event, lane, picture.now, fill)
    for event in mine:
        if event.not_before is not None and event.visible is not None:
            ahead = event.started is None or event.not_before <= event.started
            if ahead and (event.over is None or event.not_before <= event.over):
                made[column(event.not_before)] = "due"
        struck = {column(i.t) for i in event.impacts if lane.machine in i.machines}
        for at in struck:
            made[at] = "impact"
        if event.ending == "withdrawn" and event.over is not None:
            made[column(event.over)] = "withdrawn"
        if event.approved is not None:
            at = column(event.approved)
            if at in struck:  # side by side, where both would be one
                at = max(at - 1, 0)
                made[min(at + 1, width - 1)] = "impact"
            made[at] = "approved"
    for t, id in lane.approvals:
        if id not in lane.events:
            made[column(t)] = "approves"
    for mark in lane.marks:
        made[column(mark.t)] = mark.kind
    return made


def _stretches(
    event: EventBar, lane: Lane, now: float, fill: Callable[[float, float, str], None]
) -> None:
    end = event.over if event.over is not None else now
    if event.visible is not None:
        until = min(event.started if event.started is not None else end, end)
        sight = event.sight(lane.machine)
        fill(event.visible, until, "scheduled")
        if sight is not None and sight.seen is not None and sight.seen <= until:
            fill(sight.seen, until, "seen")
    if event.started is not None:
        fill(event.started, max(end, event.started), "started")


def state(lane: Lane, picture: Picture) -> str:
    """How things stand with the machine, in a few words."""
    known = picture.by_id
    mine = [known[id] for id in lane.events if id in known]
    going = [event for event in mine if event.over is None] or mine[-1:]
    if not going:
        return ""
    one = next((event for event in going if event.started is not None), going[0])
    more = f" +{len(going) - 1}" if len(going) > 1 else ""
    if one.over is not None:
        return f"{one.type} {'over' if one.ending == 'finished' else one.ending}"
    if one.started is not None:
        return f"{one.type} Started{more}"
    if one.not_before is None or one.visible is None:
        return f"{one.type} pending{more}"
    left = one.not_before - picture.now
    return f"{one.type} {'in ' + length(left) if left > 0 else 'is due'}{more}"

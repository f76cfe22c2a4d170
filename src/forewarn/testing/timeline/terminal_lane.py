"""One lane as characters: which shape is in which column. No meaning depends on colours alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from forewarn.testing.timeline.axis import Axis, duration
from forewarn.testing.timeline.values import EventBar, Lane, Picture

EMPTY = ""


class Shape(msgspec.Struct, frozen=True):
    sign: str
    plain: str  # in ASCII
    style: str
    meaning: str


# In the order of the legend. Later ones are painted over earlier ones.
SHAPES: Mapping[str, Shape] = {
    "poll": Shape("·", ".", "dim", "poll"),
    "away": Shape("╱", "/", "magenta", "service down"),
    "disconnected": Shape("╲", "\\", "magenta", "node cut off"),
    "scheduled": Shape("░", "-", "yellow", "Scheduled, not seen yet"),
    "seen": Shape("▒", "=", "yellow", "Scheduled and seen"),
    "started": Shape("█", "#", "blue", "Started"),
    "due": Shape("┊", "|", "bold", "NotBefore"),
    "impact": Shape("◆", "*", "bold red", "impact"),
    "withdrawn": Shape("×", "x", "bold", "withdrawn"),
    "approves": Shape("»", ">", "green", "approved another machine's event"),
    "approved": Shape("✓", "A", "bold green", "approved"),
    "ready": Shape("r", "r", "green", "readiness report"),
    "refused": Shape("?", "?", "bold red", "refused"),
    "fault": Shape("!", "!", "bold magenta", "fault"),
}


def cells(lane: Lane, picture: Picture, axis: Axis, width: int) -> list[str]:
    """Return the name of a shape for each column, or EMPTY."""
    shapes = [EMPTY] * width

    def column(t: float) -> int:
        return min(int(axis.share(t) * width), width - 1)

    def fill(start: float, end: float, shape: str) -> None:
        for at in range(column(start), column(end) + 1):
            shapes[at] = shape

    for tick in lane.ticks:
        fill(tick.start, tick.end, "poll")
    for outage in picture.outages:
        fill(outage.start, outage.end, "away")
    for time in lane.disconnected:
        fill(time.start, time.end, "disconnected")
    events_by_id = picture.by_id
    events = [events_by_id[id] for id in lane.events if id in events_by_id]
    for event in events:
        _fill_event(event, lane, picture.now, fill)
    for event in events:
        if event.not_before is not None and event.visible is not None:
            ahead = event.started is None or event.not_before <= event.started
            if ahead and (event.ended is None or event.not_before <= event.ended):
                shapes[column(event.not_before)] = "due"
        impact_columns = {
            column(impact.t) for impact in event.impacts if lane.machine in impact.machines
        }
        for at in impact_columns:
            shapes[at] = "impact"
        if event.ending == "withdrawn" and event.ended is not None:
            shapes[column(event.ended)] = "withdrawn"
        if event.approved is not None:
            at = column(event.approved)
            if at in impact_columns:  # draw them side by side
                at = max(at - 1, 0)
                shapes[min(at + 1, width - 1)] = "impact"
            shapes[at] = "approved"
    for t, id in lane.approvals:
        if id not in lane.events:
            shapes[column(t)] = "approves"
    for mark in lane.marks:
        shapes[column(mark.t)] = mark.kind
    return shapes


def _fill_event(
    event: EventBar, lane: Lane, now: float, fill: Callable[[float, float, str], None]
) -> None:
    end = event.ended if event.ended is not None else now
    if event.visible is not None:
        scheduled_until = min(event.started if event.started is not None else end, end)
        seen = event.seen.get(lane.machine)
        fill(event.visible, scheduled_until, "scheduled")
        if seen is not None and seen <= scheduled_until:
            fill(seen, scheduled_until, "seen")
    if event.started is not None:
        fill(event.started, max(end, event.started), "started")


def state(lane: Lane, picture: Picture) -> str:
    """Describe the state of the machine's current or last event."""
    events_by_id = picture.by_id
    events = [events_by_id[id] for id in lane.events if id in events_by_id]
    current = [event for event in events if event.ended is None] or events[-1:]
    if not current:
        return ""
    shown = next((event for event in current if event.started is not None), current[0])
    more = f" +{len(current) - 1}" if len(current) > 1 else ""
    if shown.ended is not None:
        return f"{shown.type} {'ended' if shown.ending == 'finished' else shown.ending}"
    if shown.started is not None:
        return f"{shown.type} Started{more}"
    if shown.not_before is None or shown.visible is None:
        return f"{shown.type} pending{more}"
    remaining = shown.not_before - picture.now
    return f"{shown.type} {'in ' + duration(remaining) if remaining > 0 else 'is due'}{more}"

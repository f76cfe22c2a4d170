"""What happened to a machine, in words: for labels beside bars, for hovering, for reading aloud."""

from __future__ import annotations

from forewarn.support.text import listing
from forewarn.testing.timeline.axis import after, exact, length, of_day
from forewarn.testing.timeline.values import STRANGERS, EventBar, Lane, Picture

DESCRIBED = 30  # events in the description of a picture; the others are counted


def label(event: EventBar, machine: str) -> str:
    """A few words that stand beside the bar, so that nobody needs the colours."""
    sight = event.sight(machine)
    said = [event.type]
    if sight is None or sight.seen is None:
        said.append("not seen")
    elif late(event, sight.seen):
        said.append("seen too late")
    if event.ending in ("withdrawn", "gone"):
        said.append(event.ending)
    elif event.approved is not None:
        said.append(f"approved by {event.approved_by}")
    elif why := started_why(event):
        said.append(why)
    return " · ".join(said)


def late(event: EventBar, seen: float) -> bool:
    """Was it first seen only when it had started, though there had been a notice?"""
    warned = event.visible is not None and event.visible != event.started
    return warned and event.started is not None and seen > event.started


def started_why(event: EventBar) -> str:
    if event.started is None:
        return ""
    if event.approved is not None and event.approved <= event.started:
        return f"approved by {event.approved_by}"
    if event.visible is None or event.visible >= event.started:
        return "without warning"
    if event.not_before is not None and event.started >= event.not_before:
        return "notice over"
    return ""


def course(event: EventBar, machine: str) -> str:
    """All that is known, a line each: what hovering shows."""
    sight = event.sight(machine)
    lines = [f"{event.type} {event.id}", f"for {listing(event.machines)}"]
    if event.visible is not None:
        lines.append(f"visible {exact(event.visible)}")
    if sight is not None and sight.seen is not None:
        wait = after(event.visible, sight.seen)
        lines.append(f"seen by {machine} {exact(sight.seen)}{f', after {wait}' if wait else ''}")
    else:
        lines.append(f"never seen by {machine}")
    if event.not_before is not None:
        lines.append(f"NotBefore {exact(event.not_before)}")
    if event.approved is not None:
        lines.append(f"approved {exact(event.approved)} by {event.approved_by}")
    if event.started is not None:
        lines.append(f"Started {exact(event.started)}")
    for impact in event.impacts:
        if machine in impact.machines:
            lasts = f", {length(impact.seconds)}" if impact.seconds else ""
            lines.append(f"impact {exact(impact.t)}{lasts}")
    if event.over is not None:
        lines.append(f"{event.ending} {exact(event.over)}")
    return "\n".join(lines)


def polling(lane: Lane) -> str:
    if not lane.polls:
        return f"{lane.machine} did not ask"
    first, last = lane.ticks[0].start, max(tick.end for tick in lane.ticks)
    often = f", about every {length((last - first) / (lane.polls - 1))}" if last > first else ""
    return f"{lane.machine} asked {_times(lane.polls)}{often}, last {exact(last)}"


def heading(picture: Picture) -> str:
    """How much there is to see, in one line."""
    count = len(picture.events)
    followed = sum(lane.machine != STRANGERS for lane in picture.lanes)
    said = [
        _from_to(picture.begins, picture.now),
        _count(followed + picture.unheard, "machine"),
        _count(count + picture.forgotten, "event"),
        _count(picture.polls, "poll"),
    ]
    if picture.unheard:
        said.append(f"only {_count(followed, 'machine')} could be followed")
    if picture.forgotten:
        said.append(f"the last {count:,} events are shown")
    return " · ".join(said)


def description(picture: Picture) -> str:
    """The picture for those who do not see it."""
    said = [f"A lane for each machine over time. {heading(picture)}."]
    for event in picture.events[:DESCRIBED]:
        one = f"{event.type} of {listing(event.machines)}"
        parts = []
        if event.visible is not None:
            parts.append(f"visible from {of_day(event.visible)}")
        if event.approved is not None:
            parts.append(f"approved by {event.approved_by} at {of_day(event.approved)}")
        if event.started is not None:
            parts.append(f"started {of_day(event.started)}")
        if event.over is not None:
            parts.append(f"{event.ending} {of_day(event.over)}")
        said.append(f"{one}: {', '.join(parts) or 'not announced'}.")
    more = len(picture.events) - DESCRIBED
    if more > 0:
        said.append(f"And {_count(more, 'more event')}.")
    return " ".join(said)


def _from_to(begins: float, now: float) -> str:
    begins, now = float(int(begins)), float(int(now))
    same = exact(begins)[:10] == exact(now)[:10]
    return f"{exact(begins)} to {f'{of_day(now)}Z' if same else exact(now)}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"

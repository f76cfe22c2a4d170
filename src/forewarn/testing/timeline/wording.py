"""What happened to a machine, in words: for labels beside bars, for hovering, for reading aloud."""

from __future__ import annotations

from forewarn.support.text import listing
from forewarn.testing.timeline.axis import after, exact, length, of_day
from forewarn.testing.timeline.values import STRANGERS, EventBar, Lane, Picture

DESCRIBED = 30  # events in the description of a picture; the others are counted


def label(happening: EventBar, machine: str) -> str:
    """A few words that stand beside the bar, so that nobody needs the colours."""
    sight = happening.sight(machine)
    said = [happening.type]
    if sight is None or sight.seen is None:
        said.append("not seen")
    elif late(happening, sight.seen):
        said.append("seen too late")
    if happening.ending in ("withdrawn", "gone"):
        said.append(happening.ending)
    elif happening.approved is not None:
        said.append(f"approved by {happening.approved_by}")
    elif why := started_why(happening):
        said.append(why)
    return " · ".join(said)


def late(happening: EventBar, seen: float) -> bool:
    """Was it first seen only when it had started, though there had been a notice?"""
    warned = happening.visible is not None and happening.visible != happening.started
    return warned and happening.started is not None and seen > happening.started


def started_why(happening: EventBar) -> str:
    if happening.started is None:
        return ""
    if happening.approved is not None and happening.approved <= happening.started:
        return f"approved by {happening.approved_by}"
    if happening.visible is None or happening.visible >= happening.started:
        return "without warning"
    if happening.not_before is not None and happening.started >= happening.not_before:
        return "notice over"
    return ""


def course(happening: EventBar, machine: str) -> str:
    """All that is known, a line each: what hovering shows."""
    sight = happening.sight(machine)
    lines = [f"{happening.type} {happening.id}", f"for {listing(happening.machines)}"]
    if happening.visible is not None:
        lines.append(f"visible {exact(happening.visible)}")
    if sight is not None and sight.seen is not None:
        wait = after(happening.visible, sight.seen)
        lines.append(f"seen by {machine} {exact(sight.seen)}{f', after {wait}' if wait else ''}")
    else:
        lines.append(f"never seen by {machine}")
    if happening.not_before is not None:
        lines.append(f"NotBefore {exact(happening.not_before)}")
    if happening.approved is not None:
        lines.append(f"approved {exact(happening.approved)} by {happening.approved_by}")
    if happening.started is not None:
        lines.append(f"Started {exact(happening.started)}")
    for impact in happening.impacts:
        if machine in impact.machines:
            lasts = f", {length(impact.seconds)}" if impact.seconds else ""
            lines.append(f"impact {exact(impact.t)}{lasts}")
    if happening.over is not None:
        lines.append(f"{happening.ending} {exact(happening.over)}")
    return "\n".join(lines)


def polling(lane: Lane) -> str:
    if not lane.polls:
        return f"{lane.machine} did not ask"
    first, last = lane.ticks[0].start, max(tick.end for tick in lane.ticks)
    often = f", about every {length((last - first) / (lane.polls - 1))}" if last > first else ""
    return f"{lane.machine} asked {_times(lane.polls)}{often}, last {exact(last)}"


def heading(picture: Picture) -> str:
    """How much there is to see, in one line."""
    count = len(picture.happenings)
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
    for happening in picture.happenings[:DESCRIBED]:
        one = f"{happening.type} of {listing(happening.machines)}"
        parts = []
        if happening.visible is not None:
            parts.append(f"visible from {of_day(happening.visible)}")
        if happening.approved is not None:
            parts.append(f"approved by {happening.approved_by} at {of_day(happening.approved)}")
        if happening.started is not None:
            parts.append(f"started {of_day(happening.started)}")
        if happening.over is not None:
            parts.append(f"{happening.ending} {of_day(happening.over)}")
        said.append(f"{one}: {', '.join(parts) or 'not announced'}.")
    more = len(picture.happenings) - DESCRIBED
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

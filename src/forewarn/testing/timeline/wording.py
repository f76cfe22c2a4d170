"""Texts of a timeline: labels beside bars, tooltips, and descriptions for screen readers."""

from __future__ import annotations

from forewarn.support.text import counted, listing
from forewarn.testing.timeline.axis import duration, elapsed, exact, moment
from forewarn.testing.timeline.values import (
    UNKNOWN_CALLERS,
    EventBar,
    Lane,
    Picture,
    ScenarioOutcome,
)

MAX_DESCRIBED = 30  # events in the description of a picture; the others are counted


def label(event: EventBar, machine: str) -> str:
    """Return the label of a bar, so that the picture can be read without colours."""
    sighting = event.sighting(machine)
    parts = [event.type]
    if sighting is None or sighting.seen is None:
        parts.append("not seen")
    elif seen_too_late(event, sighting.seen):
        parts.append("seen too late")
    if event.ending in ("withdrawn", "gone"):
        parts.append(event.ending)
    elif event.approved is not None:
        parts.append(f"approved by {event.approved_by}")
    elif reason := start_reason(event):
        parts.append(reason)
    return " · ".join(parts)


def seen_too_late(event: EventBar, seen: float) -> bool:
    """Return whether the event was first seen after its start although it was announced earlier."""
    announced = event.visible is not None and event.visible != event.started
    return announced and event.started is not None and seen > event.started


def start_reason(event: EventBar) -> str:
    """Return why an event has started; empty if it has not, or the trace does not say."""
    if event.started is None:
        return ""
    if event.approved is not None and event.approved <= event.started:
        return f"approved by {event.approved_by}"
    if event.visible is None or event.visible >= event.started:
        return "without notice"
    if event.not_before is not None and event.started >= event.not_before:
        return "notice over"
    return ""


def tooltip(event: EventBar, machine: str) -> str:
    """Return all that is known of an event and a machine, a fact per line."""
    sighting = event.sighting(machine)
    lines = [f"{event.type} {event.id}", f"for {listing(event.machines)}"]
    if event.visible is not None:
        lines.append(f"visible {exact(event.visible)}")
    if sighting is not None and sighting.seen is not None:
        wait = elapsed(event.visible, sighting.seen)
        lines.append(f"seen by {machine} {exact(sighting.seen)}{f', after {wait}' if wait else ''}")
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
            suffix = f", {duration(impact.seconds)}" if impact.seconds else ""
            lines.append(f"impact {exact(impact.t)}{suffix}")
    if event.ended is not None:
        lines.append(f"{event.ending} {exact(event.ended)}")
    return "\n".join(lines)


def poll_summary(lane: Lane) -> str:
    if not lane.polls:
        return f"{lane.machine} did not poll"
    first, last = lane.ticks[0].start, max(tick.end for tick in lane.ticks)
    interval = (
        f", about every {duration((last - first) / (lane.polls - 1))}" if last > first else ""
    )
    return f"{lane.machine} polled {_times(lane.polls)}{interval}, last {exact(last)}"


def heading(picture: Picture) -> str:
    """Return the time range and the numbers of machines, events and polls."""
    count = len(picture.events)
    followed = sum(lane.machine != UNKNOWN_CALLERS for lane in picture.lanes)
    parts = [
        _from_to(picture.begins, picture.now),
        counted(followed + picture.dropped_machines, "machine"),
        counted(count + picture.dropped_events, "event"),
        counted(picture.polls, "poll"),
    ]
    if picture.dropped_machines:
        parts.append(f"only {counted(followed, 'machine')} could be followed")
    if picture.dropped_events:
        parts.append(f"the last {count:,} events are shown")
    return " · ".join(parts)


def outcome(scenario: ScenarioOutcome) -> str:
    """Return whether a scenario passed, in a line."""
    if not scenario.ok:
        missed = sum(not item.ok for item in scenario.expectations)
        text = f"scenario {scenario.scenario} failed"
        if missed:
            text += f": {missed:,} of {counted(len(scenario.expectations), 'expectation')} not met"
        return text
    if not scenario.expectations:
        return f"scenario {scenario.scenario} expects nothing"
    return f"scenario {scenario.scenario} passed"


def description(picture: Picture) -> str:
    """Describe the picture for screen readers."""
    sentences = [f"{_capital(outcome(scenario))}." for scenario in picture.scenarios]
    sentences.append(f"A lane for each machine over time. {heading(picture)}.")
    for event in picture.events[:MAX_DESCRIBED]:
        subject = f"{event.type} of {listing(event.machines)}"
        parts = []
        if event.visible is not None:
            parts.append(f"visible from {moment(event.visible, picture.begins)}")
        if event.approved is not None:
            at = moment(event.approved, picture.begins)
            parts.append(f"approved by {event.approved_by} at {at}")
        if event.started is not None:
            parts.append(f"started {moment(event.started, picture.begins)}")
        if event.ended is not None:
            parts.append(f"{event.ending} {moment(event.ended, picture.begins)}")
        sentences.append(f"{subject}: {', '.join(parts) or 'not announced'}.")
    more = len(picture.events) - MAX_DESCRIBED
    if more > 0:
        sentences.append(f"And {counted(more, 'more event')}.")
    return " ".join(sentences)


def _from_to(begins: float, now: float) -> str:
    begins, now = float(int(begins)), float(int(now))
    return f"{exact(begins)} to {moment(now, begins).removesuffix('Z')}Z"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"

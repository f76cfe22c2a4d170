"""A verdict as text, for an assertion's message, a log or a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from forewarn.traces.lines import printable
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint, Conduct, Course, Unannounced, VerdictData

MAX_RENDERED = 50  # complaints, courses or machines in one text; JSON has all of them


def render(verdict: VerdictData) -> str:
    return "\n".join(_lines(verdict))


def headline(verdict: VerdictData) -> str:
    events = len({one.event for one in verdict.courses} | {e.event for e in verdict.unannounced})
    wrong, notes = len(verdict.wrong), len(verdict.notes)
    judged = f"{count(len(verdict.conducts), 'machine')}, {count(events, 'event')}"
    said = f"{count(wrong, 'thing')} wrong" if wrong else "nothing wrong"
    return f"verdict: {said}" + (f", {count(notes, 'note')}" if notes else "") + f" ({judged})"


def complaint(one: Complaint) -> str:
    """In two lines: what, who and when; and what was seen."""
    times = f", {one.times} times" if one.times > 1 else ""
    event = f" about {one.event[:8]}" if one.event else ""
    mark = "✗" if one.severity == WRONG else "·"
    return f"{mark} {one.rule}: {one.machine}{event} at {moment(one.at)}{times}\n    {one.message}"


def event_line(course: Course) -> str:
    """What became of an event, whoever looked on."""
    named = f"{course.type} {course.event[:8]}" + (f" ({course.source})" if course.source else "")
    told = [f"{named}: visible {moment(course.visible)}"]
    if course.notice is not None:
        told[0] += f" with {length(course.notice)} of notice"
    if course.approved is not None:
        told.append(
            f"approved by {printable(course.approved_by)} {_later(course, course.approved)}"
        )
    if course.started is not None:
        why = {"approval": "", "not-before": ", its notice had passed"}
        told.append(f"started {_later(course, course.started)}")
        told[-1] += why.get(course.started_by, ", suddenly")
    if course.over is not None:
        told.append(f"{course.ending or 'gone'} {_later(course, course.over)}")
    return "; ".join(told)


def unannounced_line(event: Unannounced) -> str:
    """Describe an event that was not shown to guests."""
    named = f"{event.type or 'event'} {event.event[:8]}"
    named += f" ({event.source})" if event.source else ""
    told = [f"{named} of {printable(', '.join(event.machines))}: unannounced at {moment(event.at)}"]
    if event.impact is not None:
        told.append(f"carried out after {length(round(event.impact - event.at, 3))}")
    if event.over is not None:
        told.append(f"over after {length(round(event.over - event.at, 3))}")
    return "; ".join(told)


def _later(course: Course, t: float) -> str:
    return f"after {length(round(t - course.visible, 3))}"


def course_cells(course: Course) -> tuple[str, ...]:
    return (
        course.machine + ("" if course.concerned else " (looks on)"),
        "not seen" if course.seen_after is None else f"seen after {length(course.seen_after)}",
        " → ".join(course.statuses) or "-",
        "-" if course.prepared is None else f"ready {_later(course, course.prepared)}",
        {True: "in time", False: "too late", None: "-"}[course.in_time],
        count(course.polls, "poll"),
    )


def conduct_cells(conduct: Conduct) -> tuple[str, ...]:
    every = "-" if conduct.every is None else f"every {_rough(conduct.every)}"
    longest = "" if conduct.longest is None else f", longest {_rough(conduct.longest)}"
    waits = f", {conduct.waits} waiting" if conduct.waits else ""
    return (
        conduct.machine,
        count(conduct.polls, "poll") + waits,
        every + longest,
        _counts(conduct.versions),
        _counts(conduct.statuses),
        _counts(conduct.faults),
        conduct.headers.get("user-agent", "-"),
    )


def by_event(verdict: VerdictData) -> dict[str, list[Course]]:
    found: dict[str, list[Course]] = {}
    for course in verdict.courses:
        found.setdefault(course.event, []).append(course)
    return found


def _lines(verdict: VerdictData) -> Iterator[str]:
    yield headline(verdict)
    for one in verdict.complaints[:MAX_RENDERED]:
        yield "  " + complaint(one).replace("\n", "\n  ")
    if len(verdict.complaints) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.complaints), 'complaint')}"
    shown = 0
    if verdict.courses or verdict.unannounced:
        yield "events"
    for hidden in verdict.unannounced[:MAX_RENDERED]:
        yield f"  {unannounced_line(hidden)}"
    if len(verdict.unannounced) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.unannounced), 'unannounced event')}"
    for courses in by_event(verdict).values():
        if shown >= MAX_RENDERED:
            break
        yield f"  {event_line(courses[0])}"
        for course in courses[: MAX_RENDERED - shown]:
            yield "    " + "  ".join(course_cells(course))
        shown += len(courses)
    if shown and len(verdict.courses) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.courses), 'course')}"
    if verdict.conducts:
        yield "machines"
    for conduct in verdict.conducts[:MAX_RENDERED]:
        yield "  " + "  ".join(conduct_cells(conduct))
    if len(verdict.conducts) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.conducts), 'machine')}"
    for remark in verdict.remarks:
        yield f"remark: {remark}"


def _rough(seconds: float) -> str:
    return length(round(seconds, 1) if seconds >= 1 else seconds)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(key, 40)} ×{n:,}" for key, n in counts.items()) or "-"


def moment(t: float) -> str:
    try:
        at = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):
        return str(t)
    return at.isoformat(sep=" ", timespec="milliseconds").replace(".000", "")[:-6] + "Z"


def length(seconds: float) -> str:
    """`0.2 s`, `30 s`, `15 min`, `1 h 30 min`."""
    if seconds < 0:
        return "-" + length(-seconds)
    if seconds < 120:
        digits = f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
        return digits.rstrip("0").rstrip(".") + " s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(parts + [f"{rest} s"] * bool(rest and not hours))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

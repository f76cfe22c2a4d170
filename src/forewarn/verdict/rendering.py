"""A verdict as text, for an assertion's message, a log or a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from forewarn.traces.lines import printable
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint, Conduct, Course, Unannounced, VerdictData

MAX_RENDERED = 50  # complaints, courses or machines; the JSON form has all of them
MAX_OF_ONE_RULE = 3  # complaints of one rule about one machine; further ones are counted

# The heads of the columns of `course_cells` and `conduct_cells`.
COURSES = ("MACHINE", "SEEN", "AS", "READY", "IN TIME", "POLLS")
CONDUCTS = ("MACHINE", "POLLS", "HOW OFTEN", "API-VERSION", "ANSWERED", "FAULTS", "USER-AGENT")


def render(verdict: VerdictData) -> str:
    return "\n".join([headline(verdict), *details(verdict)])


def headline(verdict: VerdictData) -> str:
    events = len(
        {course.event for course in verdict.courses}
        | {event.event for event in verdict.unannounced}
    )
    wrong, notes = len(verdict.wrong), len(verdict.notes)
    judged = f"{count(len(verdict.conducts), 'machine')}, {count(events, 'event')}"
    result = f"{count(wrong, 'thing')} wrong" if wrong else "nothing wrong"
    return f"verdict: {result}" + (f", {count(notes, 'note')}" if notes else "") + f" ({judged})"


def complaint_text(complaint: Complaint) -> str:
    """Describe a complaint in two lines: rule, machine and time; and the message."""
    times = f", {complaint.times} times" if complaint.times > 1 else ""
    event = f" about {complaint.event[:8]}" if complaint.event else ""
    mark = "✗" if complaint.severity == WRONG else "·"
    what = f"{complaint.rule}: {complaint.machine}{event}"
    return f"{mark} {what} at {moment(complaint.at)}{times}\n    {complaint.message}"


def event_line(course: Course) -> str:
    """Describe the course of an event, independent of any machine."""
    name = f"{course.type} {course.event[:8]}" + (f" ({course.source})" if course.source else "")
    parts = [f"{name}: visible {moment(course.visible)}"]
    if course.notice is not None:
        parts[0] += f" with {length(course.notice)} of notice"
    if course.approved is not None:
        parts.append(
            f"approved by {printable(course.approved_by)} {_later(course, course.approved)}"
        )
    if course.started is not None:
        reasons = {"approval": "", "not-before": ", its notice had passed"}
        parts.append(f"started {_later(course, course.started)}")
        parts[-1] += reasons.get(course.started_by, ", without notice")
    if course.over is not None:
        parts.append(f"{course.ending or 'gone'} {_later(course, course.over)}")
    return "; ".join(parts)


def unannounced_line(event: Unannounced) -> str:
    """Describe an event that was not shown to guests."""
    name = f"{event.type or 'event'} {event.event[:8]}"
    name += f" ({event.source})" if event.source else ""
    parts = [f"{name} of {printable(', '.join(event.machines))}: unannounced at {moment(event.at)}"]
    if event.impact is not None:
        parts.append(f"carried out after {length(round(event.impact - event.at, 3))}")
    if event.over is not None:
        parts.append(f"ended after {length(round(event.over - event.at, 3))}")
    return "; ".join(parts)


def _later(course: Course, t: float) -> str:
    return f"after {length(round(t - course.visible, 3))}"


def course_cells(course: Course) -> tuple[str, ...]:
    return (
        course.machine + ("" if course.concerned else " (not affected)"),
        "not seen" if course.seen_after is None else f"seen after {length(course.seen_after)}",
        " → ".join(course.statuses) or "-",
        "-" if course.prepared is None else f"ready {_later(course, course.prepared)}",
        _in_time(course),
        count(course.polls, "poll"),
    )


def _in_time(course: Course) -> str:
    if course.in_time is False and course.excuse:
        return f"excused: {course.excuse}"
    return {True: "in time", False: "too late", None: "-"}[course.in_time]


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
    courses: dict[str, list[Course]] = {}
    for course in verdict.courses:
        courses.setdefault(course.event, []).append(course)
    return courses


def complaint_texts(complaints: Iterable[Complaint]) -> Iterator[str]:
    """Describe complaints, and only count those of which there are too many of one kind."""
    rendered: dict[tuple[str, str], int] = {}
    left_out: dict[tuple[str, str], list[Complaint]] = {}
    for item in complaints:
        kind = item.rule, item.machine
        rendered[kind] = rendered.get(kind, 0) + 1
        if rendered[kind] <= MAX_OF_ONE_RULE:
            yield complaint_text(item)
        else:
            left_out.setdefault(kind, []).append(item)
    for (rule, machine), items in left_out.items():
        times = sum(item.times for item in items)
        yield f"… {rule}: {machine}: {count(times, 'more time')}, about other events"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table with heads, in columns."""
    cells = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def details(verdict: VerdictData) -> Iterator[str]:
    """Yield everything but the headline: complaints, events, machines and remarks."""
    for text in complaint_texts(verdict.complaints[:MAX_RENDERED]):
        yield "  " + text.replace("\n", "\n  ")
    if len(verdict.complaints) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.complaints), 'complaint')}"
    rendered = 0
    if verdict.courses or verdict.unannounced:
        yield "events"
    for event in verdict.unannounced[:MAX_RENDERED]:
        yield f"  {unannounced_line(event)}"
    if len(verdict.unannounced) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.unannounced), 'unannounced event')}"
    for courses in by_event(verdict).values():
        if rendered >= MAX_RENDERED:
            break
        yield f"  {event_line(courses[0])}"
        for line in table(COURSES, map(course_cells, courses[: MAX_RENDERED - rendered])):
            yield f"    {line}"
        rendered += len(courses)
    if rendered and len(verdict.courses) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.courses), 'course')}"
    if verdict.conducts:
        yield "machines"
        for line in table(CONDUCTS, map(conduct_cells, verdict.conducts[:MAX_RENDERED])):
            yield f"  {line}"
    if len(verdict.conducts) > MAX_RENDERED:
        yield f"  … of {count(len(verdict.conducts), 'machine')}"
    for remark in verdict.remarks:
        yield f"remark: {remark}"


def _rough(seconds: float) -> str:
    return length(round(seconds, 1) if seconds >= 1 else seconds)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(key, 40)} ×{number:,}" for key, number in counts.items()) or "-"


def moment(t: float) -> str:
    try:
        at = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):
        return str(t)
    return at.isoformat(sep=" ", timespec="milliseconds").replace(".000", "")[:-6] + "Z"


def length(seconds: float) -> str:
    """Format a duration, for example `0.2 s`, `30 s`, `15 min` or `1 h 30 min`."""
    if seconds < 0:
        return "-" + length(-seconds)
    if seconds < 120:
        digits = f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
        return digits.rstrip("0").rstrip(".") + " s"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(parts + [f"{seconds_left} s"] * bool(seconds_left and not hours))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

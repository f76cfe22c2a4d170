"""Events as an iCalendar (RFC 5545), which calendar programs subscribe to.

An entry depends on nothing but its event, so that a calendar that has not changed is the same
bytes. SEQUENCE grows when NotBefore is postponed, when the event starts, and when it is withdrawn.
What rollouts are still to announce is summed; there, SEQUENCE grows with every step announced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forewarn import __version__
from forewarn.core import Event, Status, Time
from forewarn.core.rollouts.outlook import PlannedSteps
from forewarn.core.time import SECOND
from forewarn.support.instants import to_datetime
from forewarn.support.text import counted, listing

MAX_ENTRIES = 5_000  # in one calendar
REFRESH = "PT15M"  # how often programs should look for changes
STARTED_FROM = 1_000_000_000  # SEQUENCE of a Started event: above all of Scheduled ones
WITHDRAWN_FROM = 2 * STARTED_FROM  # of a Withdrawn one: above all others, and below 2**31
MAX_LINE = 75  # bytes of a line, without its end

_CONTROL = dict.fromkeys((*range(32), *range(127, 160), 8232, 8233))
_ESCAPED = _CONTROL | str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"})


def calendar(events: Sequence[Event], planned: Sequence[PlannedSteps] = ()) -> bytes:
    """Return a calendar with the events, and the steps of rollouts that are not announced yet, that
    begin first, at most MAX_ENTRIES."""
    entries: list[tuple[Time, str, Event | PlannedSteps]] = [
        *((_begin(event), event.id, event) for event in events),
        *((steps.begins, _id(steps), steps) for steps in planned),
    ]
    shown = sorted(entries, key=lambda entry: entry[:2])[:MAX_ENTRIES]
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:-//forewarn//forewarn {__version__}//EN",
        "CALSCALE:GREGORIAN",
        "METHOD:PUBLISH",
        "X-WR-CALNAME:Planned maintenance",
        f"REFRESH-INTERVAL;VALUE=DURATION:{REFRESH}",
        f"X-PUBLISHED-TTL:{REFRESH}",
    ]
    if len(shown) < len(entries):
        left_out = (
            f"The first {len(shown):,} of {counted(len(entries), 'event')}. Subscribe to a part of"
            " the fleet, by group, label or host, to see all of its events."
        )
        lines.append(f"X-WR-CALDESC:{_text(left_out)}")
    for _, _, entry in shown:
        lines += _entry(entry) if isinstance(entry, Event) else _planned_entry(entry)
    lines.append("END:VCALENDAR")
    return b"".join(_folded(line) for line in lines)


def _entry(event: Event) -> Iterator[str]:
    begin, changed = _begin(event), _time(_changed(event))
    status = "TENTATIVE"
    if event.status is Status.WITHDRAWN:
        status = "CANCELLED"
    elif event.started_at is not None or event.approved is not None:
        status = "CONFIRMED"
    yield "BEGIN:VEVENT"
    yield f"UID:{event.id}@forewarn"
    yield f"DTSTAMP:{changed}"
    yield f"LAST-MODIFIED:{changed}"
    yield f"CREATED:{_time(event.raised_at)}"
    yield f"SEQUENCE:{_sequence(event)}"
    yield f"DTSTART:{_time(begin)}"
    if event.duration > 0:
        yield f"DTEND:{_time(begin + event.duration * SECOND)}"
    summary = f"{event.type.value} of {listing(event.resources)} ({event.group})"
    yield f"SUMMARY:{_text(summary)}"
    yield f"DESCRIPTION:{_text(_description(event))}"
    if event.host:
        yield f"LOCATION:{_text(event.host)}"
    yield f"CATEGORIES:{event.type.value}"
    yield f"STATUS:{status}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _planned_entry(planned: PlannedSteps) -> Iterator[str]:
    rollout = planned.rollout
    changed = _time(max(rollout.created_at, rollout.resumed.at if rollout.resumed else 0))
    wave = f", wave {planned.wave + 1} of {rollout.waves}" if rollout.waves > 1 else ""
    machines = counted(len(planned.machines), "machine")
    description = (
        f"{counted(planned.steps, 'step')} of a rollout, not announced yet: this is when they are"
        " expected to start, and to end.",
        rollout.description,
        f"Ticket: {rollout.ticket}" if rollout.ticket else "",
        f"Machines: {listing(planned.machines)}",
        f"Rollout: {rollout.id}",
    )
    yield "BEGIN:VEVENT"
    yield f"UID:{_id(planned)}@forewarn"
    yield f"DTSTAMP:{changed}"
    yield f"LAST-MODIFIED:{changed}"
    yield f"CREATED:{_time(rollout.created_at)}"
    yield f"SEQUENCE:{len(rollout.steps) - planned.steps}"
    yield f"DTSTART:{_time(planned.begins)}"
    yield f"DTEND:{_time(planned.ends)}"
    yield f"SUMMARY:{_text(f'{rollout.kind} of {machines}{wave} (planned)')}"
    yield f"DESCRIPTION:{_text(chr(10).join(line for line in description if line))}"
    yield f"CATEGORIES:{rollout.kind}"
    yield "STATUS:TENTATIVE"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _id(planned: PlannedSteps) -> str:
    window = "" if planned.opens is None else f"-{_time(planned.opens)}"
    return f"{planned.rollout.id}-{planned.wave + 1}{window}"


def _description(event: Event) -> str:
    if event.status is Status.WITHDRAWN:
        begin = f"It will not happen: {event.ending}."
    elif event.status is Status.STARTED:
        begin = "It has started."
    elif event.approved is not None:
        begin = "It is approved, and starts as soon as nothing holds it."
    else:
        begin = "It does not start before this time, unless it is approved."
    ticket = f"Ticket: {event.ticket}" if event.ticket else ""
    machines = f"Machines: {', '.join(event.resources)}"
    lines = (begin, event.description, ticket, machines, f"Event: {event.id}")
    return "\n".join(line for line in lines if line)


def _begin(event: Event) -> Time:
    return event.not_before if event.started_at is None else event.started_at


def _changed(event: Event) -> Time:
    approved = event.approved.at if event.approved else 0
    postponed = event.postponed[-1].at if event.postponed else 0
    return max(event.raised_at, approved, postponed, event.started_at or 0, event.ended_at or 0)


def _sequence(event: Event) -> int:
    if event.status is Status.WITHDRAWN:
        return WITHDRAWN_FROM
    if event.started_at is not None:
        return STARTED_FROM
    return max(0, min((event.not_before - event.raised_at) // SECOND, STARTED_FROM - 1))


def _time(at: Time) -> str:
    return to_datetime(at).strftime("%Y%m%dT%H%M%SZ")


def _text(text: str) -> str:
    return text.translate(_ESCAPED)


def _folded(line: str) -> bytes:
    """Return a line with its end, cut into parts that are not too long, between characters."""
    rest = line.encode()
    parts = []
    room = MAX_LINE
    while len(rest) > room:
        end = room
        while rest[end] & 0xC0 == 0x80:  # in the middle of a character
            end -= 1
        parts.append(rest[:end])
        rest = rest[end:]
        room = MAX_LINE - 1  # continued lines begin with a space
    return b"\r\n ".join([*parts, rest]) + b"\r\n"

"""Which machines did not see an event while it was announced: the rule that each of them broke, or
its excuse.

A client is blamed only for what it had a chance to do. When a virtual clock is moved, fifteen
minutes pass in which no client could have polled. So durations are measured by the clock that
advanced less, the service's or the real one. Less than MIN_CHANCE is no chance: then it was not the
client that missed the event, but the clock that was moved past it (`clock-passed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from forewarn.traces.exchanges import Stamp, before, seconds_between
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import SCHEDULED, EventCourse, MachineCourse
from forewarn.verdict.observed import Observed
from forewarn.verdict.rendering import length, moment
from forewarn.verdict.rules import MIN_CHANCE, PREPARING, SILENCE, SILENT_GAPS
from forewarn.wire.versions import DELETING


class Missed(NamedTuple):
    """Why a machine did not see an event in time: a broken rule, or an excuse."""

    excuse: str = ""
    rule: str = ""
    message: str = ""
    at: float = 0.0


MissedEvents: TypeAlias = Mapping[tuple[str, str], Missed]  # by machine and event


def missed_events(observed: Observed) -> MissedEvents:
    """Return the events that machines did not see in time."""
    events_of = observed.events_by_machine()
    return {
        (machine, event.id): missed
        for machine, events in events_of.items()
        for event in events
        if (course := event.machine_courses.get(machine)) is not None
        and (missed := _missed(observed, event, course, events)) is not None
    }


def prevented_polls(event: EventCourse, since: float, restart_seconds: float) -> bool:
    """Return whether the event may have prevented its machines from polling after that time."""
    if event.started is None:
        return False
    return event.over is None or event.type in DELETING or event.over.t + restart_seconds >= since


def _missed(
    observed: Observed, event: EventCourse, course: MachineCourse, events: list[EventCourse]
) -> Missed | None:
    visible, until = event.visible, event.started or event.over
    if visible is None or course.statuses[:1] == [SCHEDULED]:
        return None
    client = observed.clients.get(course.machine)
    name = f"{event.type} {event.id[:8]}"
    if client is not None and course.seen is None and course.hiding_version:
        message = (
            f"polls with api-version {course.hiding_version}, which does not show a {event.type},"
            f" and so never saw {event.id[:8]}; use a newer api-version"
        )
        return Missed("", "blind-version", message, visible.t)
    if client is not None and course.seen is None and course.unread:
        message = (
            "polls with If-None-Match: *, which is answered 304 whatever the document is, and so"
            f" never saw {name}; send the ETag of the last document"
        )
        return Missed("", "never-seen", message, visible.t)
    if event.sudden or until is None:
        return None
    if client is None or client.first is None or not before(client.first, visible):
        return Missed("no client was polling when it was announced")
    if client.always_refused:
        return Missed("its requests were refused")
    if excuse := _excuse(client, event, course, events, until, observed.restart_seconds):
        return Missed(excuse)
    if until.t - visible.t < MIN_CHANCE:
        return _fell_silent(client, event, course, until) or Missed(
            f"it was announced for less than {length(MIN_CHANCE)}"
        )
    chance = seconds_between(visible, until)
    if silences := client.unresponsive_before(until):
        if any(silence.unanswered for silence in silences):
            return Missed("its request was not answered")
        return _stopped(client, event, until) or Missed("its polls failed")
    if chance < MIN_CHANCE:
        message = (
            f"the clock passed the notice of {name} ({length(round(until.t - visible.t))}) while"
            f" {client.machine}, which polls, had not polled; use clock.play, or advance in steps"
            " that let it poll"
        )
        return Missed("", "clock-passed", message, visible.t)
    if until.t - visible.t > chance + MIN_CHANCE and client.usual_interval > chance:
        return Missed("the clock ran faster than it polls")  # the rules on rates check its interval
    if course.seen is None:
        if client.asked is not None and event.over is not None and before(event.over, client.asked):
            message = (
                f"never saw {name}: it polled before and after, but not in the {chance:.0f} s in"
                " which the event was announced; poll once a second"
            )
            return Missed("", "never-seen", message, visible.t)
        if not event.started_by_approval and (missed := _stopped(client, event, until)):
            return missed
    elif not event.started_by_approval:
        message = (
            f"first saw {name} {course.seen.t - visible.t:.0f} s after it was announced, when it"
            " had started; poll once a second"
        )
        return Missed("", "seen-late", message, course.seen.t)
    if event.started_by_approval:
        return Missed(f"{event.approved_by} approved it before this machine polled")
    return Missed("its polls failed")


def _stopped(client: Client, event: EventCourse, until: Stamp) -> Missed | None:
    """Return that a client has stopped polling, if it has not polled since the event started."""
    asked, done = client.asked, client.done
    if asked is None or done is None or not before(asked, until):
        return None
    message = (
        f"has not polled since {moment(asked.t)}, and so has not seen {event.type} {event.id[:8]}"
    )
    return Missed("", "stopped-polling", message, asked.t)


def _fell_silent(
    client: Client, event: EventCourse, course: MachineCourse, until: Stamp
) -> Missed | None:
    """Return that a client has stopped polling, if it was silent for so long before an event of
    short notice started that it must have stopped before the event was announced."""
    if course.heard is None or client.longest_gap is None:
        return None
    least = max(SILENCE if course.idle else PREPARING, SILENT_GAPS * client.longest_gap)
    return _stopped(client, event, until) if seconds_between(course.heard, until) >= least else None


def _excuse(
    client: Client,
    event: EventCourse,
    course: MachineCourse,
    events: list[EventCourse],
    until: Stamp,
    restart_seconds: float,
) -> str:
    """Return why the machine could not see the event, or an empty text."""
    visible = event.visible
    assert visible is not None
    if not event.recorded:
        return "the trace has no lines about events"
    if event.hidden:
        return "its group was disabled"
    if course.disconnected:
        return "its node could not be reached by control"
    if course.hiding_version:
        return "it used an older api-version at first"
    if course.backing_off:
        return "its last answer before that was an error, or the service was down"
    if course.polled_started if event.started is not None else course.polled_over:
        return "its polls failed"
    if any(asked.t <= until.t and done.t >= visible.t for asked, done in client.long_requests):
        return "its request was not answered"
    if any(
        other is not event
        and other.started is not None
        and other.started.t <= until.t
        and prevented_polls(other, visible.t, restart_seconds)
        for other in events
    ):
        return "another event disturbed its machine"
    if event.interrupted:
        return "the service was down, or its clock was stepped"
    return ""

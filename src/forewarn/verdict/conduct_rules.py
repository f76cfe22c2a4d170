"""The rules that need the whole trace: missed events, reactions, and how often a machine polled.

A client is blamed only for what it had a chance to do. Durations are measured by the clock that
advanced less, the service's or the real one; see `missed_events.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.traces.exchanges import Stamp, before, seconds_between
from forewarn.verdict.clients import Client, Unresponsive
from forewarn.verdict.event_courses import SCHEDULED, EventCourse, MachineCourse
from forewarn.verdict.missed_events import MissedEvents, prevented_polls
from forewarn.verdict.observed import Observed
from forewarn.verdict.rendering import length, moment
from forewarn.verdict.rules import (
    GIVEN_UP_AFTER,
    MAX_INTERVAL,
    MIN_CHANCE,
    RULES,
)
from forewarn.verdict.values import Complaint
from forewarn.wire.versions import DELETING, PREEMPT, RESTARTING

PREPARED_TYPES = (*RESTARTING, *DELETING)  # after which nothing in memory is left
PREEMPT_NOTICE = 30.0  # seconds: the minimum notice of all types
LOOK_AGAIN = (
    "; if the program is meant to end with its machine, start it again when the event is over"
)


def complaints(observed: Observed, missed: MissedEvents, now: Stamp) -> list[Complaint]:
    result: list[Complaint] = []
    events_of = observed.events_by_machine()
    for client in observed.clients.values():
        if client.always_refused:
            continue
        events = events_of.get(client.machine, [])
        of_client: list[Complaint] = []
        for event in events:
            reason = missed.get((client.machine, event.id))
            if reason is not None and reason.rule:
                of_client.append(_complaint(reason.rule, reason.message, client, reason.at, event))
            course = event.machine_courses.get(client.machine)
            if course is not None:
                of_client += _reaction(client, event, course)
        of_client += _rate(client, events, client.machine in observed.spot)
        of_client += _waiting(client)
        reported = {item.event for item in of_client}
        of_client += _silence(client, events, reported, observed.restart_seconds, now)
        if not any(item.rule in ("stopped-polling", "gave-up") for item in of_client):
            gone = observed.is_gone(client.machine)
            of_client += _unresponsive(client, events, gone)
        result += of_client
    for event in observed.events.values():
        result += _approved_too_early(observed, event)
    if observed.nobody_polled and not any(
        client.always_refused for client in observed.clients.values()
    ):
        result += _nobody_polled(observed)
    return result


def _approved_too_early(observed: Observed, event: EventCourse) -> Iterator[Complaint]:
    """Complain of a machine by whose approval an event was carried out on a busy machine."""
    client = observed.clients.get(event.approved_by)
    if client is None or event.started is None or not event.started_by_approval:
        return
    for course in event.machine_courses.values():
        if course.busy:
            subject = "it" if course.machine == client.machine else course.machine
            message = (
                f"approved {event.type} {event.id[:8]}, and {subject} was still busy when it was"
                f" carried out: {course.busy}; approve when the work is done"
            )
            at = event.impact if event.impact is not None else event.started.t
            yield _complaint("approved-too-early", message, client, at, event)


def _nobody_polled(observed: Observed) -> Iterator[Complaint]:
    """Complain if no client polled at all, since a test of such a client would pass otherwise."""
    for event in observed.events.values():
        start = event.started or (event.over if event.visible else None)
        if start is None or not event.machines:
            continue
        message = (
            f"{event.type} {event.id[:8]} started, but no machine has polled; is the client using"
            " this endpoint? A test waits for its first poll with wait_for_poll()"
        )
        yield Complaint(
            rule="nobody-asked",
            severity=RULES["nobody-asked"].severity,
            machine=event.machines[0],
            group=event.group,
            event=event.id,
            at=start.t,
            message=message,
        )
        return  # one complaint is enough


def _reaction(client: Client, event: EventCourse, course: MachineCourse) -> Iterator[Complaint]:
    """Note that a machine let the notice of its own event pass, though it had seen it."""
    if (
        event.type in PREPARED_TYPES
        and event.started is not None
        and event.approved is None
        and course.statuses[:1] == [SCHEDULED]
        and course.prepared is None
        and not course.approvals
        and course.uncertain_approval is None
    ):
        message = (
            f"saw {event.type} {event.id[:8]} and neither approved it nor reported that it is"
            f" ready before it started{_real_time_given(course, event.started)}; approve it when"
            " everything is prepared"
        )
        yield _complaint("no-reaction", message, client, event.started.t, event)


def _real_time_given(course: MachineCourse, started: Stamp) -> str:
    """Return how much time the machine had, if that is much less than the notice it was shown."""
    if course.seen is None or course.seen.real is None or started.real is None:
        return ""
    real = started.real - course.seen.real
    if real > MIN_CHANCE or started.t - course.seen.t < 2 * real:
        return ""
    return f", {length(round(real, 1))} of real time after it had seen it"


def _rate(client: Client, events: list[EventCourse], spot: bool) -> Iterator[Complaint]:
    if client.hammered:
        message = (
            f"polled {client.hammered:.0f} times a second for a while; once a second is enough"
        )
        yield _complaint("hammering", message, client, client.hammered_at)
    gap = client.gap
    if gap is None or client.asked is None:
        return
    notices = [(event.notice, event.type) for event in events if event.notice is not None]
    shortest, type = min(notices, default=(PREEMPT_NOTICE, PREEMPT))
    if spot and shortest > PREEMPT_NOTICE:
        shortest, type = PREEMPT_NOTICE, PREEMPT
    if (notices or spot) and gap > max(MIN_CHANCE, shortest / 2):
        message = (
            f"polls every {gap:.0f} s, but a {type} of its machine gives {shortest:.0f} s of"
            " notice; poll once a second"
        )
        yield _complaint("polls-too-seldom", message, client, client.asked.t)
    elif gap > MAX_INTERVAL:
        message = (
            f"polls every {gap:.0f} s; a Preempt gives {PREEMPT_NOTICE:.0f} s of notice, so poll"
            " more often"
        )
        yield _complaint("polls-seldom", message, client, client.asked.t)


def _waiting(client: Client) -> Iterator[Complaint]:
    """Note that a client has waited for an answer that did not come, instead of asking again."""
    if client.stalled is not None:
        message = (
            f"waited for an answer that did not come for {length(client.stalled.seconds)} or more,"
            " and did not ask again; give requests a time-out of a few seconds, or play with a"
            " longer timeout if they have a longer one"
        )
        yield _complaint("no-timeout", message, client, client.stalled.at)


def _silence(
    client: Client,
    events: list[EventCourse],
    reported: set[str],
    restart_seconds: float,
    now: Stamp,
) -> Iterator[Complaint]:
    done = client.done
    if done is None or seconds_between(done, now) < GIVEN_UP_AFTER:
        return
    asked = client.asked
    if asked is None or any(_still_away(event, asked.t, restart_seconds, now) for event in events):
        return  # its machine is being disturbed, or was deleted
    prefix = f"has not polled for {seconds_between(done, now):.0f} s"
    if client.trouble:
        message = f"{prefix}, since it got {client.trouble}; poll again after a while"
        yield _complaint("gave-up", message, client, done.t)
        return
    for event in events:
        course = event.machine_courses.get(client.machine)
        if (
            course is not None
            and course.seen is None
            and event.visible
            and event.id not in reported
            and not event.sudden
            and before(done, event.visible)
        ):
            message = f"{prefix}, and so has not seen {event.type} {event.id[:8]}"
            yield _complaint("stopped-polling", message, client, done.t, event)


def _still_away(event: EventCourse, asked: float, restart_seconds: float, now: Stamp) -> bool:
    """Return whether the event explains that a machine has not polled since that time."""
    if not prevented_polls(event, asked, restart_seconds):
        return False
    if event.over is None or event.type in DELETING:
        return True
    return seconds_between(event.over, now) < restart_seconds + GIVEN_UP_AFTER


def _unresponsive(client: Client, events: list[EventCourse], gone: bool) -> Iterator[Complaint]:
    """Complain about a client for which the clock has waited in vain. One that has ended with its
    machine is blamed only if it had stopped before it could know that it need not go on."""
    for silence in client.unresponsive.values():
        if silence.counts and (not gone or _stopped_at_announcement(client, events, silence)):
            last = moment(silence.last)
            waited = (
                f"it was waited for {length(silence.seconds)} in vain (timeout= gives it longer)"
                if silence.seconds
                else "its program ended"
            )
            if silence.trouble:
                message = (
                    f"has not polled since {last}, when it got {silence.trouble}: {waited}; poll"
                    " again after a while, or play with a longer timeout"
                )
                yield _complaint("gave-up", message, client, silence.at.t)
            else:
                message = f"polled until {last} and then stopped: {waited}"
                restarted = _restarted_meanwhile(events, silence)
                yield _complaint(
                    "stopped-polling",
                    message + (LOOK_AGAIN if restarted else ""),
                    client,
                    silence.at.t,
                )
            return
    if gone:
        return
    if client.slow is not None and not client.slow.trouble and not client.hung(client.slow.at):
        message = (
            f"did not poll while it was waited for {length(client.slow.seconds)}, and polled"
            " again later; play with a longer timeout"
        )
        yield _complaint("slow-poll", message, client, client.slow.at.t)


def _stopped_at_announcement(
    client: Client, events: list[EventCourse], silence: Unresponsive
) -> bool:
    """Return whether a client stopped while the deletion of its machine was announced, without
    having approved it or reported that it is ready."""
    for event in events:
        course = event.machine_courses.get(client.machine)
        if event.type in DELETING and course is not None:
            stopped = event.started is None or before(silence.at, event.started)
            if stopped and not course.approvals and course.prepared is None:
                return True
    return False


def _restarted_meanwhile(events: list[EventCourse], silence: Unresponsive) -> bool:
    """Return whether its own event was carried out between its last request and the silence."""
    return any(
        event.started is not None
        and event.over is not None
        and event.over.t >= silence.last
        and event.started.t <= silence.at.t
        for event in events
    )


def _complaint(
    rule: str, message: str, client: Client, at: float, event: EventCourse | None = None
) -> Complaint:
    return Complaint(
        rule=rule,
        severity=RULES[rule].severity,
        machine=client.machine,
        group=client.group,
        event=event.id if event else "",
        at=at,
        message=message,
    )

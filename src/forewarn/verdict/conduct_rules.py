"""The rules that need the whole trace: missed events, and how often a machine polled.

A client is blamed only for what it had a chance to do. When a virtual clock is moved, fifteen
minutes pass in which no client could have polled. So durations are measured by the clock that
advanced less, the service's or the real one, and what is shorter than MIN_CHANCE is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forewarn.traces.exchanges import Stamp, apart, before
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import STARTED, EventCourse, MachineCourse
from forewarn.verdict.observed import Observed
from forewarn.verdict.rules import GIVEN_UP_AFTER, MAX_INTERVAL, MIN_CHANCE, RESTART_SECONDS, RULES
from forewarn.verdict.values import Complaint
from forewarn.wire.versions import DELETING

PREEMPT = 30.0  # seconds: the minimum notice of all types


def complaints(observed: Observed, now: Stamp) -> list[Complaint]:
    result: list[Complaint] = []
    events_of: dict[str, list[EventCourse]] = {}
    for event in observed.events.values():
        for machine in event.machines:
            events_of.setdefault(machine, []).append(event)
    for client in observed.clients.values():
        events = events_of.get(client.machine, [])
        for event in events:
            course = event.machine_courses.get(client.machine)
            if course is not None and event.visible is not None:
                result += _missed(client, event, course, events, observed.outages)
        result += _rate(client, events, client.machine in observed.spot)
        result += _silence(client, events, now)
    if observed.nobody_polled:
        result += _nobody_polled(observed)
    return result


def _nobody_polled(observed: Observed) -> Iterator[Complaint]:
    """Complain if no client polled at all, since a test of such a client would pass otherwise."""
    for event in observed.events.values():
        start = event.started or (event.over if event.visible else None)
        if start is None or not event.machines:
            continue
        message = (
            f"{event.type} {event.id[:8]} started, but no machine has polled; is the client using"
            " this endpoint?"
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


def _missed(
    client: Client,
    event: EventCourse,
    course: MachineCourse,
    events: list[EventCourse],
    outages: Iterable[float],
) -> Iterator[Complaint]:
    if course.seen is None and course.hiding_version:
        message = (
            f"polls with api-version {course.hiding_version}, which does not show a {event.type},"
            f" and so never saw {event.id[:8]}; use a newer api-version"
        )
        yield _complaint("blind-version", message, client, _t(event.visible), event)
        return
    if (
        not event.recorded
        or event.hidden
        or event.sudden
        or course.hiding_version
        or course.backing_off
    ):
        return
    until = event.started or event.over
    visible = event.visible
    assert visible is not None
    if until is None or client.first is None or not before(client.first, visible):
        return
    polls = course.polls_started if event.started is not None else course.polls_over
    chance = apart(visible, until)
    if (
        polls != course.polls_visible
        or chance < MIN_CHANCE
        or _excused(client, event, events, until)
    ):
        return
    if any(visible.t <= t <= until.t for t in outages):
        return  # it may have been waiting for the service to come back
    if until.t - visible.t > chance + MIN_CHANCE and client.usual_interval > chance:
        return  # the clock ran faster than it polls; `_rate` checks the interval
    if course.seen is None:
        polled_later = (
            client.asked is not None and event.over is not None and before(event.over, client.asked)
        )
        if polled_later:
            message = (
                f"never saw {event.type} {event.id[:8]}: it polled before and after, but not in"
                f" the {chance:.0f} s in which the event was announced; poll once a second"
            )
            yield _complaint("never-seen", message, client, visible.t, event)
    elif course.statuses[:1] == [STARTED] and not event.started_by_approval:
        message = (
            f"first saw {event.type} {event.id[:8]} {course.seen.t - visible.t:.0f} s after it was"
            " announced, when it had started; poll once a second"
        )
        yield _complaint("seen-late", message, client, course.seen.t, event)


def _excused(client: Client, event: EventCourse, events: list[EventCourse], until: Stamp) -> bool:
    """Return whether it could not poll, because of a hanging request or another event."""
    visible = event.visible
    assert visible is not None
    request_hung = any(
        asked.t <= until.t and done.t >= visible.t for asked, done in client.long_requests
    )
    return request_hung or any(
        other_event is not event
        and other_event.started is not None
        and other_event.started.t <= until.t
        and _prevented_polls(other_event, visible.t)
        for other_event in events
    )


def _prevented_polls(event: EventCourse, since: float) -> bool:
    """Return whether the event may have prevented polls after that time."""
    if event.started is None:
        return False
    return event.over is None or event.type in DELETING or event.over.t + RESTART_SECONDS >= since


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
    shortest, type = min(notices, default=(PREEMPT, "Preempt"))
    if spot and shortest > PREEMPT:
        shortest, type = PREEMPT, "Preempt"
    if (notices or spot) and gap > max(MIN_CHANCE, shortest / 2):
        message = (
            f"polls every {gap:.0f} s, but a {type} of its machine gives {shortest:.0f} s of"
            " notice; poll once a second"
        )
        yield _complaint("polls-too-seldom", message, client, client.asked.t)
    elif gap > MAX_INTERVAL:
        message = (
            f"polls every {gap:.0f} s; a Preempt gives {PREEMPT:.0f} s of notice, so poll more"
            " often"
        )
        yield _complaint("polls-seldom", message, client, client.asked.t)


def _silence(client: Client, events: list[EventCourse], now: Stamp) -> Iterator[Complaint]:
    done = client.done
    if done is None or apart(done, now) < GIVEN_UP_AFTER:
        return
    if client.asked is None or any(_prevented_polls(event, client.asked.t) for event in events):
        return  # its machine is being disturbed, or was deleted
    prefix = f"has not polled for {apart(done, now):.0f} s"
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
            and before(done, event.visible)
        ):
            message = f"{prefix}, and so has not seen {event.type} {event.id[:8]}"
            yield _complaint("stopped-polling", message, client, done.t, event)


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


def _t(stamp: Stamp | None) -> float:
    return stamp.t if stamp else 0.0

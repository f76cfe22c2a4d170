"""The rules that only the whole trace shows broken: missed events, and how often a machine polled.

A client is blamed only for what it had a chance to do. Where a virtual clock is moved, fifteen
minutes may pass between two lines, and nobody could have polled; so a length counts by the clock
that went less, the service's or a real one, and what is shorter than a CHANCE counts as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forewarn.traces.exchanges import Stamp, apart, before
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import STARTED, EventCourse, MachineCourse
from forewarn.verdict.known import Known
from forewarn.verdict.rules import CHANCE, GIVEN_UP, RESTARTING, RULES, SELDOM
from forewarn.verdict.values import Complaint
from forewarn.wire.versions import DELETING

PREEMPT = 30.0  # seconds of notice, the shortest that is promised


def complaints(known: Known, now: Stamp) -> list[Complaint]:
    result: list[Complaint] = []
    concerning: dict[str, list[EventCourse]] = {}
    for event in known.events.values():
        for machine in event.machines:
            concerning.setdefault(machine, []).append(event)
    for client in known.clients.values():
        about = concerning.get(client.machine, [])
        for event in about:
            course = event.machine_courses.get(client.machine)
            if course is not None and event.visible is not None:
                result += _missed(client, event, course, about, known.outages)
        result += _rate(client, about, client.machine in known.spot)
        result += _silence(client, about, now)
    if known.nobody_polled:
        result += _nobody_polled(known)
    return result


def _nobody_polled(known: Known) -> Iterator[Complaint]:
    """Complain if no client polled at all, since a test of such a client would pass otherwise."""
    for event in known.events.values():
        begun = event.started or (event.over if event.visible else None)
        if begun is None or not event.machines:
            continue
        message = (
            f"{event.type} {event.id[:8]} came, and no machine has asked for a document; is the"
            " client asking here?"
        )
        yield Complaint(
            rule="nobody-asked",
            severity=RULES["nobody-asked"].severity,
            machine=event.machines[0],
            group=event.group,
            event=event.id,
            at=begun.t,
            message=message,
        )
        return  # one complaint is enough


def _missed(
    client: Client,
    event: EventCourse,
    course: MachineCourse,
    about: list[EventCourse],
    outages: Iterable[float],
) -> Iterator[Complaint]:
    if course.seen is None and course.blind:
        message = (
            f"asks with {course.blind}, which does not show a {event.type}, and so never saw"
            f" {event.id[:8]}; ask with a newer api-version"
        )
        yield _complaint("blind-version", message, client, _t(event.visible), event)
        return
    if not event.recorded or event.hidden or event.struck or course.blind or course.backing_off:
        return
    until = event.started or event.over
    visible = event.visible
    assert visible is not None
    if until is None or client.first is None or not before(client.first, visible):
        return
    polls = course.polls_started if event.started is not None else course.polls_over
    chance = apart(visible, until)
    if polls != course.polls_visible or chance < CHANCE or _excused(client, event, about, until):
        return
    if any(visible.t <= t <= until.t for t in outages):
        return  # it may be waiting for a service that was away
    if until.t - visible.t > chance + CHANCE and client.usual > chance:
        return  # the clock ran faster than it asks; whether that is often enough is `_rate`
    if course.seen is None:
        alive = (
            client.asked is not None and event.over is not None and before(event.over, client.asked)
        )
        if alive:
            message = (
                f"was never shown {event.type} {event.id[:8]}: it asked before and after, but not"
                f" in the {chance:.0f} s in which that was announced; ask once a second"
            )
            yield _complaint("never-seen", message, client, visible.t, event)
    elif course.statuses[:1] == [STARTED] and not event.early:
        message = (
            f"first saw {event.type} {event.id[:8]} {course.seen.t - visible.t:.0f} s after it was"
            " announced, when it had started; ask once a second"
        )
        yield _complaint("seen-late", message, client, course.seen.t, event)


def _excused(client: Client, event: EventCourse, about: list[EventCourse], until: Stamp) -> bool:
    """Whether it could not poll: because of a request that hung, or of what its machine went
    through."""
    visible = event.visible
    assert visible is not None
    hung = any(asked.t <= until.t and done.t >= visible.t for asked, done in client.long)
    return hung or any(
        other is not event
        and other.started is not None
        and other.started.t <= until.t
        and _kept(other, visible.t)
        for other in about
    )


def _kept(event: EventCourse, since: float) -> bool:
    """Whether the event kept its machines from polling after that time."""
    if event.started is None:
        return False
    return event.over is None or event.type in DELETING or event.over.t + RESTARTING >= since


def _rate(client: Client, about: list[EventCourse], spot: bool) -> Iterator[Complaint]:
    if client.hammered:
        message = f"asked {client.hammered:.0f} times a second for a while; once a second is enough"
        yield _complaint("hammering", message, client, client.hammered_at)
    gap = client.gap
    if gap is None or client.asked is None:
        return
    notices = [(event.notice, event.type) for event in about if event.notice is not None]
    shortest, type = min(notices, default=(PREEMPT, "Preempt"))
    if spot and shortest > PREEMPT:
        shortest, type = PREEMPT, "Preempt"
    if (notices or spot) and gap > max(CHANCE, shortest / 2):
        message = (
            f"asks every {gap:.0f} s, but a {type} of its machine gives {shortest:.0f} s of notice;"
            " ask once a second"
        )
        yield _complaint("polls-too-seldom", message, client, client.asked.t)
    elif gap > SELDOM:
        message = (
            f"asks every {gap:.0f} s; a Preempt gives {PREEMPT:.0f} s of notice, so ask oftener"
        )
        yield _complaint("polls-seldom", message, client, client.asked.t)


def _silence(client: Client, about: list[EventCourse], now: Stamp) -> Iterator[Complaint]:
    done = client.done
    if done is None or apart(done, now) < GIVEN_UP:
        return
    if client.asked is None or any(_kept(event, client.asked.t) for event in about):
        return  # its machine is being worked on, or has been taken away
    silent = f"has not asked for {apart(done, now):.0f} s"
    if client.trouble:
        message = f"{silent}, since it was answered with {client.trouble}; ask again after a while"
        yield _complaint("gave-up", message, client, done.t)
        return
    for event in about:
        course = event.machine_courses.get(client.machine)
        if (
            course is not None
            and course.seen is None
            and event.visible
            and before(done, event.visible)
        ):
            message = f"{silent}, and so has not seen {event.type} {event.id[:8]}"
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

"""What only the whole shows: events that were missed, and how often a machine asked.

Held against a client is only what it had a chance to do. Where time is wound, fifteen minutes may
pass between two lines, and nobody could have asked; so a length counts by the clock that went
less, the service's or a real one, and what is shorter than a CHANCE counts as nothing.
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


def complaints(register: Known, now: Stamp) -> list[Complaint]:
    found: list[Complaint] = []
    concerning: dict[str, list[EventCourse]] = {}
    for one in register.happenings.values():
        for machine in one.machines:
            concerning.setdefault(machine, []).append(one)
    for client in register.clients.values():
        about = concerning.get(client.machine, [])
        for one in about:
            way = one.ways.get(client.machine)
            if way is not None and one.visible is not None:
                found += _missed(client, one, way, about, register.outages)
        found += _rate(client, about, client.machine in register.spot)
        found += _silence(client, about, now)
    if register.deserted:
        found += _deserted(register)
    return found


def _deserted(register: Known) -> Iterator[Complaint]:
    """Nothing else can be told of a client that never came, and so a test of it would pass."""
    for one in register.happenings.values():
        begun = one.started or (one.over if one.visible else None)
        if begun is None or not one.machines:
            continue
        says = (
            f"{one.type} {one.id[:8]} came, and no machine has asked for a document; is the client"
            " asking here?"
        )
        yield Complaint(
            rule="nobody-asked",
            severity=RULES["nobody-asked"].severity,
            machine=one.machines[0],
            group=one.group,
            event=one.id,
            at=begun.t,
            says=says,
        )
        return  # once says it all


def _missed(
    client: Client,
    one: EventCourse,
    way: MachineCourse,
    about: list[EventCourse],
    outages: Iterable[float],
) -> Iterator[Complaint]:
    if way.seen is None and way.blind:
        says = (
            f"asks with {way.blind}, which does not show a {one.type}, and so never saw"
            f" {one.id[:8]}; ask with a newer api-version"
        )
        yield _say("blind-version", says, client, _t(one.visible), one)
        return
    if not one.told or one.hidden or one.struck or way.blind or way.backing_off:
        return
    until = one.started or one.over
    visible = one.visible
    assert visible is not None
    if until is None or client.first is None or not before(client.first, visible):
        return
    asks = way.asks_started if one.started is not None else way.asks_over
    chance = apart(visible, until)
    if asks != way.asks_visible or chance < CHANCE or _excused(client, one, about, until):
        return
    if any(visible.t <= t <= until.t for t in outages):
        return  # it may be waiting for a service that was away
    if until.t - visible.t > chance + CHANCE and client.usual > chance:
        return  # the clock ran faster than it asks; whether that is often enough is `_rate`
    if way.seen is None:
        alive = client.asked is not None and one.over is not None and before(one.over, client.asked)
        if alive:
            says = (
                f"was never shown {one.type} {one.id[:8]}: it asked before and after, but not in"
                f" the {chance:.0f} s in which that was announced; ask once a second"
            )
            yield _say("never-seen", says, client, visible.t, one)
    elif way.statuses[:1] == [STARTED] and not one.early:
        says = (
            f"first saw {one.type} {one.id[:8]} {way.seen.t - visible.t:.0f} s after it was"
            " announced, when it had started; ask once a second"
        )
        yield _say("seen-late", says, client, way.seen.t, one)


def _excused(client: Client, one: EventCourse, about: list[EventCourse], until: Stamp) -> bool:
    """Was it kept from asking: by a request that hung, or by what was done to its machine?"""
    visible = one.visible
    assert visible is not None
    hung = any(asked.t <= until.t and done.t >= visible.t for asked, done in client.long)
    return hung or any(
        other is not one
        and other.started is not None
        and other.started.t <= until.t
        and _kept(other, visible.t)
        for other in about
    )


def _kept(one: EventCourse, since: float) -> bool:
    """Could its machine not ask after that, because of what this did to it?"""
    if one.started is None:
        return False
    return one.over is None or one.type in DELETING or one.over.t + RESTARTING >= since


def _rate(client: Client, about: list[EventCourse], spot: bool) -> Iterator[Complaint]:
    if client.hammered:
        says = f"asked {client.hammered:.0f} times a second for a while; once a second is enough"
        yield _say("hammering", says, client, client.hammered_at)
    gap = client.gap
    if gap is None or client.asked is None:
        return
    notices = [(one.notice, one.type) for one in about if one.notice is not None]
    shortest, type = min(notices, default=(PREEMPT, "Preempt"))
    if spot and shortest > PREEMPT:
        shortest, type = PREEMPT, "Preempt"
    if (notices or spot) and gap > max(CHANCE, shortest / 2):
        says = (
            f"asks every {gap:.0f} s, but a {type} of its machine gives {shortest:.0f} s of notice;"
            " ask once a second"
        )
        yield _say("polls-too-seldom", says, client, client.asked.t)
    elif gap > SELDOM:
        says = f"asks every {gap:.0f} s; a Preempt gives {PREEMPT:.0f} s of notice, so ask oftener"
        yield _say("polls-seldom", says, client, client.asked.t)


def _silence(client: Client, about: list[EventCourse], now: Stamp) -> Iterator[Complaint]:
    done = client.done
    if done is None or apart(done, now) < GIVEN_UP:
        return
    if client.asked is None or any(_kept(one, client.asked.t) for one in about):
        return  # its machine is being worked on, or has been taken away
    silent = f"has not asked for {apart(done, now):.0f} s"
    if client.trouble:
        says = f"{silent}, since it was answered with {client.trouble}; ask again after a while"
        yield _say("gave-up", says, client, done.t)
        return
    for one in about:
        way = one.ways.get(client.machine)
        if way is not None and way.seen is None and one.visible and before(done, one.visible):
            says = f"{silent}, and so has not seen {one.type} {one.id[:8]}"
            yield _say("stopped-polling", says, client, done.t, one)


def _say(
    rule: str, says: str, client: Client, at: float, one: EventCourse | None = None
) -> Complaint:
    return Complaint(
        rule=rule,
        severity=RULES[rule].severity,
        machine=client.machine,
        group=client.group,
        event=one.id if one else "",
        at=at,
        says=says,
    )


def _t(stamp: Stamp | None) -> float:
    return stamp.t if stamp else 0.0

"""Machines that come back: an event that was carried out is over once they have polled again.

Only if that is the policy of their group, and only those are waited for that polled before the
event started, and often enough that they can be expected to poll in that time. Who has not polled
by then is *not back*.
"""

from __future__ import annotations

import msgspec

from forewarn.core.changes import Change, EventMoved, MachinePut
from forewarn.core.events import Event, EventType, Waiting
from forewarn.core.fleet import NotBack, OverWhen
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.time import HOUR, MINUTE, Duration, Durations, Time
from forewarn.core.world import World
from forewarn.support.text import listing

POLLED_WITHIN: Duration = HOUR  # before its event starts, for a machine that is waited for
POLLS_EXPECTED = 2  # at least, of such a machine, while it is waited for
BACK_WITHIN: Duration = 10 * MINUTE  # after a restart, unless the group's policy says otherwise
LONGEST_PAUSE: Duration = MINUTE  # after an event that keeps the machine's memory


def back_within(group: Group, type: EventType, rules: Durations) -> Duration:
    """Return for how long events of this type wait for their machines after they were carried out;
    0: not at all."""
    policy, traits = group.policy, type.traits
    heard = rules.until_heard if policy.over_when is None else policy.over_when is OverWhen.HEARD
    if not heard or traits.deletes:
        return 0
    within = BACK_WITHIN if policy.back_within is None else policy.back_within
    return rules.paced(min(within, LONGEST_PAUSE) if traits.keeps_memory else within)


def polling(group: Group, event: Event, now: World) -> tuple[str, ...]:
    """Return the machines of a starting event that can be expected to poll after it."""
    within = back_within(group, event.type, now.rules)
    if not within:
        return ()
    polls = [(name, now.polls.get(name)) for name in event.resources]
    return tuple(
        name
        for name, poll in polls
        if poll is not None
        and poll.last >= now.at - POLLED_WITHIN
        and POLLS_EXPECTED * poll.interval <= within
    )


def waiting(group: Group, event: Event, now: World) -> Waiting | None:
    """Return the machines that an event waits for from now on, since it was carried out; None if
    there are none."""
    if not event.polling or not back_within(group, event.type, now.rules):
        return None
    alive = group.alive
    machines = tuple(name for name in event.polling if name in alive)
    return Waiting(machines=machines, since=now.at, served=now.served) if machines else None


def missing(group: Group, event: Event, now: World) -> tuple[str, ...]:
    """Return the machines that an event still waits for."""
    if event.waiting is None or not back_within(group, event.type, now.rules):
        return ()
    machines, since = group.named(event.waiting.machines), event.waiting.since
    return tuple(
        name
        for name, machine in machines.items()
        if machine.alive and now.heard.get(name, since - 1) < since
    )


def over_at(group: Group, event: Event, now: World) -> Time | None:
    """Return until when an event waits for its machines; None if it does not, or not yet."""
    if event.waiting is None:
        return None
    if not missing(group, event, now):
        return event.waiting.since
    return event.waiting.served + back_within(group, event.type, now.rules) + now.lost


def returned(group: Group, now: World) -> tuple[Change, ...]:
    """Return the changes that end events whose machines are back, or have not come back in time."""
    items: list[Change] = []
    for event in group.events:
        at = over_at(group, event, now) if event.waiting is not None else None
        if at is not None and now.at >= at:
            items += _over(group, event, missing(group, event, now), now)
    return tuple(items)


def _over(group: Group, event: Event, not_back: tuple[str, ...], now: World) -> list[Change]:
    assert event.waiting is not None
    ending = (
        f"carried out, but {listing(not_back)} did not come back" if not_back else "carried out"
    )
    over = move(
        event,
        Move.FINISH,
        ended_at=now.at,
        ending=ending,
        carried_out=True,
        not_back=not_back,
    )
    lost = NotBack(event.id, event.waiting.since, event.cause)
    return [
        EventMoved(Move.FINISH, over),
        *(
            MachinePut(msgspec.structs.replace(machine, not_back=lost))
            for machine in group.named(not_back).values()
        ),
    ]


def heard(group: Group, machines: tuple[str, ...]) -> tuple[Change, ...]:
    """Return the changes that record which machines are back."""
    return tuple(
        MachinePut(msgspec.structs.replace(machine, not_back=None))
        for machine in group.named(machines).values()
        if machine.not_back is not None
    )

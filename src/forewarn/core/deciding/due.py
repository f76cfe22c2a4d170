"""When time alone will next change a group. A deadline is read off the state, never set."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.deciding.holds import (
    Occupancy,
    coupled,
    open_deletes,
    recalled,
    ripe_at,
    unasked,
)
from forewarn.core.events import Event, Status
from forewarn.core.group import Group
from forewarn.core.time import Now, Time


def due(group: Group, now: Now) -> Time | None:
    """The earliest instant at which a Tick would change something, as things stand.

    It depends on `now` for the continuity (how much service was lost, since when it is steady).
    An answer that lies in the past says that a Tick is overdue, not since when.
    """
    instants: list[Time] = []
    if group.enabling_until is not None:
        instants.append(group.enabling_until)
    if now.untrusted is not None:
        return min(instants, default=None)  # a first poll is answered all the same
    if group.enabled and now.rules.silence is not None:
        instants.append(group.seen + now.rules.paced(now.rules.silence) + now.lost)
    floor = Occupancy(group.events)
    deletes = open_deletes(group.events, now)
    for event in group.events:
        if event.status is Status.STARTED:
            if event.attempt is not None and event.attempt.next_at is not None:
                instants.append(event.attempt.next_at)
        elif event.joint is None and not floor.taken(event):
            instants += _starts(event, now, deletes)
    return min(instants, default=None)


def _starts(event: Event, now: Now, deletes: Sequence[Event]) -> list[Time]:
    """When it starts if nothing but time holds it; a window that has closed holds it for good."""
    waits = unasked(event, now) or coupled(event, now, deletes)
    at = ripe_at(event, now) if waits else event.raised_at
    if now.grace_ends is not None and recalled(event, now):
        at = max(at, now.grace_ends)
    if event.span is not None:
        at = max(at, event.span.opens)
        if event.span.closes is not None and max(at, now.at) >= event.span.closes:
            return []
    return [at]

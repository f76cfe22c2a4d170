"""When time alone will change a group next. Deadlines are derived from the state, never stored."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.deciding.configurations import configurations_of
from forewarn.core.deciding.holds import (
    HaltedMachines,
    Occupancy,
    awaits_approval,
    earlier_deletes,
    in_restore_grace,
    notice_over_at,
    opens_at,
    waiting_deletes,
)
from forewarn.core.deciding.reach import UnreachableMachines, unheard
from forewarn.core.deciding.returns import over_at
from forewarn.core.events import Event, Status
from forewarn.core.group import Group
from forewarn.core.time import Time
from forewarn.core.world import World


def due(group: Group, now: World) -> Time | None:
    """Return the earliest instant at which a Tick would change something in the current state.

    It depends on `now` because of outages (how much time was lost, since when the service is
    steady). An instant in the past means that a Tick is overdue, not since when it is.
    """
    instants: list[Time] = []
    if group.enabling_until is not None:
        instants.append(group.enabling_until)
    if now.untrusted is not None:
        return min(instants, default=None)  # a first poll is answered nevertheless
    if group.enabled and now.rules.silence is not None and not unheard(group, now):
        instants.append(group.seen + now.rules.paced(now.rules.silence) + now.lost)
    occupancy = Occupancy(group.events)
    deletes = waiting_deletes(group.events, now)
    halted, unreachable = HaltedMachines(group, now), UnreachableMachines(group, now)
    for event in group.events:
        if event.status is Status.STARTED:
            if event.attempt is not None and event.attempt.next_at is not None:
                instants.append(event.attempt.next_at)
            if (at := over_at(group, event, now)) is not None:
                instants.append(at)
        elif (
            event.joint is None
            and not occupancy.blocks(event)
            and not halted.stop(event)
            and not unreachable.cut_off(event)
        ):
            grace_ends = unreachable.grace_ends(event) if event.approved is None else None
            instants += _start_times(group, event, now, deletes, grace_ends)
    return min(instants, default=None)


def _start_times(
    group: Group, event: Event, now: World, deletes: Sequence[Event], grace_ends: Time | None
) -> list[Time]:
    """Return when the event starts if only time holds it; never, if its window has closed.
    `grace_ends` is until when it does not because a host of its was unreachable."""
    at = event.raised_at
    if awaits_approval(event, now):
        at = notice_over_at(event, now)
    elif earlier_deletes(event, now, deletes):
        # Until the notice of the last of them has passed, which need not start then.
        earlier = [delete for delete in deletes if delete.not_before <= event.not_before]
        at = notice_over_at(earlier[-1], now)
    if now.grace_ends is not None and in_restore_grace(event, now):
        at = max(at, now.grace_ends)
    if grace_ends is not None:
        at = max(at, grace_ends)
    configurations = configurations_of(group, event, now)
    if event.span is None and not configurations:
        return [at]
    opens = opens_at(event, configurations, max(at, now.at))
    return [] if opens is None else [opens]

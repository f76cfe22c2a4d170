"""Continuing where the last process that decided has ended, by what it has stored of the time."""

from __future__ import annotations

from forewarn.core import Time
from forewarn.service.engine.clock import Clock
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import PollSightings, Store


async def resume(
    store: Store, polls: PollIndex, clock: Clock, *, has_nodes: bool = False
) -> tuple[PollSightings, Time, bool]:
    """Set the clock by where an earlier run ended. Return what that run had stored about polls, the
    time until which it served (0 if there was none), and whether guests were answered since.

    A process with a lease has compared its clock with that of the state (`Leadership.take`). If the
    service `has_nodes`, these answer guests while no process decides, and whether they did so all
    the time is known of each (`UnreachableHosts`). What the earlier run has stored at its end is
    all that is to be known, unless it has committed something afterwards."""
    sightings = await polls.load()
    served_until, lost = sightings.served_until or 0, sightings.lost
    steady_since = sightings.steady_since if has_nodes and sightings.copied is None else None
    async for commit in store.commits(max(store.seq - 1, 0)):
        if commit.at >= served_until:
            if commit.at > served_until:
                steady_since = None
            served_until, lost = commit.at, max(lost, commit.lost)
    answered = clock.resume(
        served_until or None,
        lost,
        copied=sightings.copied is not None,
        confirmed=store.leadership is not None,
        steady_since=steady_since,
    )
    return sightings, served_until, answered

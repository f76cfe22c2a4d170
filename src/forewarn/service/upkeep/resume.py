"""Continuing where the last process that decided has ended, by what it has stored of the time."""

from __future__ import annotations

from forewarn.core import Time
from forewarn.service.engine.clock import Clock
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import PollSightings, Store


async def resume(store: Store, polls: PollIndex, clock: Clock) -> tuple[PollSightings, Time]:
    """Set the clock by where an earlier run ended. Return what that run had stored about polls, and
    the time until which it served (0 if there was none).

    A process with a lease has compared its clock with that of the state (`Leadership.take`)."""
    sightings = await polls.load()
    served_until, lost = sightings.served_until or 0, sightings.lost
    async for commit in store.commits(max(store.seq - 1, 0)):
        if commit.at >= served_until:
            served_until, lost = commit.at, max(lost, commit.lost)
    clock.resume(
        served_until or None,
        lost,
        copied=sightings.copied is not None,
        confirmed=store.leadership is not None,
    )
    return sightings, served_until

"""The first commit after a restore, when the state is a backup and later changes are unknown.

Numbers continue beyond all that can have been shown since, rollouts are paused for an operator, and
the restore is recorded. Time since the backup counts as an outage, as after any stop; events from
before wait for `start_grace`, since they may have been cancelled (`core/deciding/holds.py`), and
are observed before they are carried out (`engine/executor.py`).
"""

from __future__ import annotations

import msgspec

from forewarn.core import Time
from forewarn.core.registry import Put, RolloutPut, StateRestored
from forewarn.core.renumbering import beyond_commits, beyond_groups, renumbered
from forewarn.core.rollouts.model import Switch
from forewarn.service.engine.writer import Writer
from forewarn.store.port import (
    Batch,
    Entry,
    PollSightings,
    States,
    Store,
    StoreFailed,
    StoreUnusable,
)
from forewarn.support.logs import logger

BY = "restore"
WHY = "the state was restored from a copy; what was done since is not known"

log = logger("forewarn")


async def take_up(
    store: Store, writer: Writer, sightings: PollSightings, ends: Time
) -> Time | None:
    """Return when a backup was last restored; record it now if that has not been done. `ends` is
    the last instant in the state."""
    if sightings.copied is None:
        restored, rules = sightings.restored, writer.rules
        if restored is not None and ends < restored + rules.paced(rules.start_grace):
            writer.restored(restored)  # the service that restored it did not run for so long
        if restored is not None:
            writer.defined_above = beyond_groups(store.groups.values())
        return restored
    now, last = writer.now(), store.seq
    unknown = now.at - min(ends, now.at)
    store.skip_numbers(max(beyond_commits(unknown), sightings.known - last))

    def work(states: States) -> Batch:
        entries = renumbered(states.values(), unknown, sightings.known)
        puts: list[Put] = [StateRestored(last, sightings.copied)]
        for rollout in states.registry.rollouts.values():
            if rollout.ended_at is None and rollout.paused is None and rollout.aborted is None:
                paused = msgspec.structs.replace(rollout, paused=Switch(by=BY, at=now.at, why=WHY))
                puts.append(RolloutPut(paused, "paused", BY))
        changed = tuple(Entry(name, items) for name, items in entries.items())
        return Batch(now.at, now.lost, changed, tuple(puts))

    try:
        await store.transact(work)
    except StoreFailed as failure:
        raise StoreUnusable(
            f"the service could not start from the restored state: {failure}"
        ) from failure
    writer.restored(now.at)
    writer.defined_above = beyond_groups(store.groups.values(), unknown, sightings.known)
    log.warning(
        "the state is a copy: events from before are observed before they are carried out, rollouts"
        " are paused, and tokens revoked since are valid again",
        commit=last,
        unknown_seconds=unknown // 1_000_000,
    )
    return now.at

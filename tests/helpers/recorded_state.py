"""What a state file holds after its service was killed, and ports that stay free meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from forewarn.core import Event, Group
from forewarn.core.changes import EventMoved, apply
from forewarn.core.time import SECOND
from forewarn.judge import Finding
from forewarn.service.telemetry.event_trace import EventTrace
from forewarn.store import Store
from forewarn.store.sqlite.engine import SqliteStore
from helpers.load import SPEED


class Record(NamedTuple):
    """What the state file holds in the end: its history played again, its state, and what the
    history says that no guest could see (which events go as one, who is not told)."""

    replayed: dict[str, Group]
    stored: dict[str, Group]
    unseen: list[dict[str, Any]]
    rollouts: dict[str, list[Event]]  # the events of each, in the order of raising
    raised: dict[str, Event]  # by id: every event, as it was raised
    moves: list[EventMoved]  # of all events, in order


async def read_state(path: Path) -> Record:
    return await read_store(SqliteStore(path))


async def read_store(store: Store) -> Record:
    await store.open()
    moves: list[EventMoved] = []
    replayed: dict[str, Group] = {}
    unseen: list[dict[str, Any]] = []
    raised: dict[str, Event] = {}
    trace = EventTrace(unseen.append)
    async for commit in store.commits(0):
        for entry in commit.entries:
            before = replayed.get(entry.group, Group(name=entry.group))
            replayed[entry.group] = apply(before, entry.items)
            for item in entry.items:
                if isinstance(item, EventMoved):
                    raised.setdefault(item.event.id, item.event)
                    moves.append(item)
        trace.on_commit(commit, replayed)
    rollouts = {
        id: list(await store.events_by_cause(f"rollout/{id}/")) for id in store.registry.rollouts
    }
    stored = dict(store.groups)
    await store.close()
    return Record(replayed, stored, unseen, rollouts, raised, moves)


def held_up(finding: Finding, raised: dict[str, Event], seconds: float) -> bool:
    """Was an event raised with its full notice, and shown at most this many seconds late, because
    of what was done to the processes? While one is dead or stands still, guests get no document,
    or the one before."""
    if finding.rule != "short-notice" or finding.event is None or finding.t is None:
        return False
    event = raised[finding.event]
    full_notice = event.not_before - event.raised_at >= event.traits.notice / SPEED
    return full_notice and finding.t - event.raised_at / SECOND <= seconds

"""What a state file holds after its service was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from forewarn.core import Event, Group
from forewarn.core.changes import EventMoved, apply
from forewarn.service.telemetry.event_trace import EventTrace
from forewarn.store.sqlite.engine import SqliteStore


class Record(NamedTuple):
    """What the state file holds in the end: its history played again, its state, and what the
    history says that no guest could see (which events go as one, who is not told)."""

    replayed: dict[str, Group]
    stored: dict[str, Group]
    unseen: list[dict[str, Any]]
    rollouts: dict[str, list[Event]]  # the events of each, in the order of raising
    raised: dict[str, Event]  # by id: every event, as it was raised


async def read_state(path: Path) -> Record:
    store = SqliteStore(path)
    await store.open()
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
        trace.on_commit(commit, replayed)
    rollouts = {
        id: list(await store.events_by_cause(f"rollout/{id}/")) for id in store.registry.rollouts
    }
    stored = dict(store.groups)
    await store.close()
    return Record(replayed, stored, unseen, rollouts, raised)

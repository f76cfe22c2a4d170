"""The engine that forgets: everything in a `Disk` object, which a test may keep and reopen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import msgspec

from forewarn.core import Event, Group
from forewarn.core.changes import EventMoved
from forewarn.core.registry import Registry
from forewarn.store.batching import BatchingStore
from forewarn.store.port import Commit, Sightings


class Disk:
    """What survives the death of a MemoryStore: what was persisted, and no more."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.registry = Registry({}, {})
        self.commits: list[Commit] = []
        self.events: dict[str, Event] = {}  # all, in the order they were raised
        self.sightings = Sightings(seen={})


class MemoryStore(BatchingStore):
    def __init__(self, disk: Disk | None = None) -> None:
        super().__init__()
        self.disk = disk or Disk()

    async def open(self) -> None:
        self._groups = dict(self.disk.groups)
        self._registry = self.disk.registry.copy()
        self._seq = len(self.disk.commits)

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        del before
        self.disk.commits.extend(commits)
        self.disk.groups.update(after)
        for commit in commits:
            for put in commit.puts:
                self.disk.registry.put(put)
            for entry in commit.entries:
                for item in entry.items:
                    if isinstance(item, EventMoved):
                        self.disk.events[item.event.id] = item.event

    async def commits(self, after: int) -> AsyncIterator[Commit]:
        at = after
        while at < self._seq:
            yield self.disk.commits[at]
            at += 1

    async def records(self, ids: Collection[str]) -> Mapping[str, Event]:
        found = {id: self.disk.events.get(id) for id in ids}
        return {id: event for id, event in found.items() if event and event.status.over}

    async def past(self, *, group: str | None = None, limit: int = 100) -> Sequence[Event]:
        over = [
            event
            for event in self.disk.events.values()
            if event.status.over and group in (None, event.group)
        ]
        return list(reversed(over))[:limit]

    async def caused_by(self, cause: str) -> Sequence[Event]:
        return [event for event in self.disk.events.values() if event.cause == cause]

    async def caused_under(self, prefix: str) -> Sequence[Event]:
        return [event for event in self.disk.events.values() if event.cause.startswith(prefix)]

    async def save(self, sightings: Sightings) -> None:
        seen = {**self.disk.sightings.seen, **sightings.seen}
        self.disk.sightings = msgspec.structs.replace(sightings, seen=seen)

    async def sightings(self) -> Sightings:
        return self.disk.sightings

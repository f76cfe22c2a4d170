"""Index of active events by id, kept up to date by every commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forewarn.core import Event, Group
from forewarn.core.changes import EventMoved
from forewarn.store.port import Commit, Store


class ActiveEvents:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._group_of: dict[str, str] = {}
        store.on_commit(self._on_commit)

    def load(self) -> None:
        events = [event for group in self._store.groups.values() for event in group.events]
        events.sort(key=lambda event: event.raised_at)
        self._group_of = {event.id: event.group for event in events}

    def __len__(self) -> int:
        return len(self._group_of)

    def __iter__(self) -> Iterator[Event]:
        """Iterate in the order in which they were raised."""
        return (event for id in list(self._group_of) if (event := self.get(id)) is not None)

    def get(self, id: str) -> Event | None:
        group = self._store.groups.get(self._group_of.get(id, ""))
        return group.event(id) if group is not None else None

    def starting_with(self, prefix: str) -> list[Event]:
        """Return the events whose id starts with this."""
        events = (self.get(id) for id in self._group_of if id.startswith(prefix))
        return [event for event in events if event is not None]

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, EventMoved):
                    if item.event.status.over:
                        self._group_of.pop(item.event.id, None)
                    else:
                        self._group_of.setdefault(item.event.id, entry.group)

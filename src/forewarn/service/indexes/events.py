"""Index of active events, by id and by when they may start, kept up to date by every commit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from forewarn.core import Event, Group, Time
from forewarn.core.changes import EventMoved
from forewarn.store.port import Commit, Store

# When it may start, the joint maintenance that it is part of (or its own id), and its id: events
# that start together are next to each other.
StartKey: TypeAlias = tuple[Time, str, str]


def start_key(event: Event) -> StartKey:
    """Return the sort key of an event by when it may start."""
    return event.not_before, event.joint.id if event.joint else event.id, event.id


class ActiveEvents:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._events: dict[str, Event] = {}  # by id, in the order in which they were raised
        self._starts: list[StartKey] = []  # sorted
        # What commits have changed of it. It is sorted again when it is read, which is fast for
        # what is nearly sorted, and not by every commit of many.
        self._added: set[StartKey] = set()
        self._removed: set[StartKey] = set()
        store.on_commit(self._on_commit)

    def load(self) -> None:
        events = [event for group in self._store.groups.values() for event in group.events]
        events.sort(key=lambda event: event.raised_at)
        self._events = {event.id: event for event in events}
        self._starts = sorted(map(start_key, events))
        self._added, self._removed = set(), set()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        """Iterate in the order in which they were raised."""
        return iter(list(self._events.values()))

    def by_start(
        self, start: Time | None, end: Time | None, after: StartKey | None
    ) -> Iterator[Event]:
        """Iterate over those that may start from `start` on and before `end`, the next one first,
        beginning behind `after`. What is over meanwhile, or has another time, is left out."""
        if self._added or self._removed:
            kept = [key for key in self._starts if key not in self._removed]
            self._starts = sorted([*kept, *self._added])
            self._added, self._removed = set(), set()
        keys = self._starts
        first = 0 if after is None else bisect_right(keys, after)
        if start is not None:
            first = max(first, bisect_left(keys, (start, "", "")))
        last = len(keys) if end is None else bisect_left(keys, (end, "", ""))
        for number in range(first, last):
            event = self._events.get(keys[number][2])
            if event is not None and start_key(event) == keys[number]:
                yield event

    def get(self, id: str) -> Event | None:
        return self._events.get(id)

    def starting_with(self, prefix: str) -> list[Event]:
        """Return the events whose id starts with this."""
        return [event for id, event in self._events.items() if id.startswith(prefix)]

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, EventMoved):
                    self._move(item.event)

    def _move(self, event: Event) -> None:
        before = self._events.get(event.id)
        if event.status.over:
            self._events.pop(event.id, None)
        else:
            self._events[event.id] = event
        old = None if before is None else start_key(before)
        new = None if event.status.over else start_key(event)
        if old == new:
            return
        if old is not None:
            _note(old, self._removed, self._added)
        if new is not None:
            _note(new, self._added, self._removed)


def _note(key: StartKey, changed: set[StartKey], opposite: set[StartKey]) -> None:
    """Note that a key was added or removed, unless that undoes what was noted before."""
    if key in opposite:
        opposite.discard(key)
    else:
        changed.add(key)

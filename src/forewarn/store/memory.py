"""The engine without a file: all state is in a `Disk` object, which a test can keep and reopen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile

import msgspec

from forewarn.core import Event, Group, Time
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.history import HistoryWriter, Record, RecordKind
from forewarn.core.registry import ClockAccepted, Registry, StateRestored
from forewarn.core.retiming import Correction
from forewarn.store.base import BatchingStore, forgotten
from forewarn.store.port import (
    Commit,
    Copy,
    HistoryQuery,
    Key,
    KeyedRequest,
    Mark,
    NotifyPosition,
    PollSightings,
    StoreFailed,
)


class Disk:
    """What a MemoryStore has persisted, and the next one can open."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.registry = Registry({}, {}, {}, {})
        self.commits: list[Commit] = []
        self.events: dict[str, Event] = {}  # active or over, in the order they were raised
        self.sightings = PollSightings(seen={})
        self.notify_positions: dict[str, NotifyPosition] = {}
        self.restored: Time | None = None
        self.keys: dict[tuple[str, str], KeyedRequest] = {}
        self.history: list[Record] = []
        self.timeline: list[Record] = []  # the same records, ordered by time
        self.seen_events: dict[str, Record] = {}  # the records of who was shown them
        self.last_record = 0  # the highest number of a record so far

    def record(self, records: Iterable[Record]) -> None:
        for record in records:
            self.last_record += 1
            numbered = msgspec.structs.replace(record, seq=self.last_record)
            self.history.append(numbered)
            if self.timeline and record.at < self.timeline[-1].at:
                insort(self.timeline, numbered, key=_mark)  # e.g. who saw an event first
            else:
                self.timeline.append(numbered)
            if record.what is RecordKind.SEEN:
                self.seen_events[record.event] = numbered

    def record_shown(self, record: Record) -> None:
        """Record who was shown an event. Of an event that was shown before, the first record
        stays: only who has been shown it is new."""
        before = self.seen_events.get(record.event)
        if before is None:
            self.record((record,))
            return
        after = msgspec.structs.replace(before, shown=record.shown)
        self.seen_events[record.event] = after
        self.history[bisect_left(self.history, before.seq, key=lambda r: r.seq)] = after
        self.timeline[bisect_left(self.timeline, _mark(before), key=_mark)] = after


class MemoryStore(BatchingStore):
    def __init__(self, disk: Disk | None = None) -> None:
        super().__init__()
        self.disk = disk or Disk()

    def size(self) -> int:
        return 0

    async def check(self) -> None:
        pass

    async def open(self) -> None:
        self._groups = dict(self.disk.groups)
        self._registry = self.disk.registry.copy()
        self._seq = self.disk.commits[-1].seq if self.disk.commits else 0

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        history = HistoryWriter(before, self._registry.hosts)
        self.disk.groups.update(after)
        for name in forgotten(commits, after):
            self.disk.groups.pop(name, None)
        for commit in commits:
            changes = [(entry.group, entry.items) for entry in commit.entries]
            self.disk.record(history.records(commit.at, changes, commit.puts))
            self.disk.commits.append(
                msgspec.structs.replace(commit, replay_notes=history.replay_notes())
            )
            for put in commit.puts:
                self.disk.registry.put(put)
                if isinstance(put, StateRestored):
                    self.disk.restored = commit.at
                if isinstance(put, ClockAccepted):
                    self._accept_clock(commit, put)
            if key := commit.key:
                self.disk.keys[key.owner, key.name] = KeyedRequest(key, commit.seq, commit.at)
            for entry in commit.entries:
                for item in entry.items:
                    match item:
                        case EventMoved(event=event):
                            self.disk.events[event.id] = event
                        case MachineRemoved(name=name):
                            self.disk.sightings.machines.pop(name, None)
                        case MachinePut(machine=machine) if machine.gone:
                            self.disk.sightings.machines.pop(machine.name, None)

    def _accept_clock(self, commit: Commit, accepted: ClockAccepted) -> None:
        disk, replace = self.disk, msgspec.structs.replace
        disk.sightings = replace(disk.sightings, served_until=commit.at, lost=commit.lost)
        if accepted.before <= commit.at:
            return
        correction = Correction(commit.at, accepted.before - commit.at)
        past = correction.past
        disk.history = [
            replace(
                record,
                at=past(record.at),
                shown=record.shown and {name: past(at) for name, at in record.shown.items()},
            )
            for record in disk.history
        ]
        disk.seen_events = {r.event: r for r in disk.history if r.what is RecordKind.SEEN}
        disk.timeline = sorted(disk.history, key=_mark)
        disk.commits = [replace(stored, at=past(stored.at)) for stored in disk.commits]
        disk.events = {id: correction.event(event) for id, event in disk.events.items()}
        disk.keys = {name: replace(keyed, at=past(keyed.at)) for name, keyed in disk.keys.items()}
        disk.restored = past(disk.restored)
        used = {token: past(at) for token, at in disk.sightings.used.items()}
        machines = {
            name: replace(m, polled=past(m.polled), answered=past(m.answered))
            for name, m in disk.sightings.machines.items()
        }
        disk.sightings = replace(disk.sightings, used=used, machines=machines)

    async def commits(self, after: int) -> AsyncIterator[Commit]:
        while True:
            index = bisect_right(self.disk.commits, after, key=lambda commit: commit.seq)
            if index == len(self.disk.commits) or self.disk.commits[index].seq > self._seq:
                return
            commit = self.disk.commits[index]
            yield commit
            after = commit.seq

    async def keyed_request(self, owner: str, name: str) -> KeyedRequest | None:
        return self.disk.keys.get((owner, name))

    async def save_answer(self, key: Key, status: int, answer: bytes) -> None:
        keyed = self.disk.keys.get((key.owner, key.name))
        if keyed is None or keyed.key != key:
            raise StoreFailed(f"no request was carried out under the key '{key.name}'")
        self.disk.keys[key.owner, key.name] = msgspec.structs.replace(
            keyed, status=status, answer=answer
        )

    async def ended_events(self, ids: Collection[str]) -> Mapping[str, Event]:
        events = {id: self.disk.events.get(id) for id in ids}
        return {id: event for id, event in events.items() if event and event.status.over}

    async def past_events(
        self, *, group: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Event]:
        if before is not None and before not in self.disk.events:
            return []
        raised = takewhile(lambda event: event.id != before, self.disk.events.values())
        over = [event for event in raised if event.status.over and group in (None, event.group)]
        return list(reversed(over))[:limit]

    async def events_by_cause(self, prefix: str) -> Sequence[Event]:
        return [event for event in self.disk.events.values() if event.cause.startswith(prefix)]

    async def event_ids(self, prefix: str, limit: int) -> Sequence[str]:
        return sorted(id for id in self.disk.events if id.startswith(prefix))[:limit]

    async def history(self, query: HistoryQuery) -> Sequence[Record]:
        if query.after_seq is not None:
            records: Iterable[Record] = self.disk.history
        else:  # a page starts at its mark, so that earlier records are not searched again
            timeline = self.disk.timeline
            first = bisect_right(timeline, query.after, key=_mark) if query.after else 0
            end = len(timeline)
            if query.before is not None:
                end = bisect_left(timeline, query.before, key=_mark)
            indexes = range(first, end)
            ordered = reversed(indexes) if query.newest_first else indexes
            records = (timeline[index] for index in ordered)
        matching = islice((r for r in records if _matches(r, query)), query.limit)
        return [self._with_shown(record) for record in matching]

    def _with_shown(self, record: Record) -> Record:
        """Return a record of a start with since when machines had been shown the event."""
        if record.what is not RecordKind.STARTED:
            return record
        seen = self.disk.seen_events.get(record.event)
        return msgspec.structs.replace(record, shown={} if seen is None else seen.shown)

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        disk = self.disk
        over = {
            event.id
            for event in disk.events.values()
            if event.status.over and (event.ended_at or 0) < cutoff and not keeps(event)
        }
        rest = [r for r in disk.history if r.event not in over and (r.event or r.at >= cutoff)]
        removed = len(disk.history) - len(rest)
        disk.history = rest
        disk.timeline = sorted(rest, key=_mark)
        disk.seen_events = {id: r for id, r in disk.seen_events.items() if id not in over}
        disk.events = {id: event for id, event in disk.events.items() if id not in over}
        needed = min(cutoff, self._oldest_needed(cutoff))
        outdated = takewhile(lambda commit: commit.at < needed, disk.commits[:-1])
        del disk.commits[: len(list(outdated))]
        oldest = disk.commits[0].seq if disk.commits else 0
        disk.keys = {name: keyed for name, keyed in disk.keys.items() if keyed.seq >= oldest}
        return removed

    async def save(self, sightings: PollSightings) -> None:
        stored = self.disk.sightings
        stored.seen.update(sightings.seen)
        stored.used.update(sightings.used)
        stored.machines.update(sightings.machines)
        if sightings.served_until is not None:
            self.disk.sightings = msgspec.structs.replace(
                stored,
                served_until=sightings.served_until,
                lost=sightings.lost,
                steady_since=sightings.steady_since,
            )
        if sightings.known:
            self.disk.sightings = msgspec.structs.replace(
                self.disk.sightings, known=sightings.known
            )
        for record in sightings.firsts:
            self.disk.record_shown(record)

    async def sightings(self) -> PollSightings:
        stored = self.disk.sightings
        return msgspec.structs.replace(
            stored,
            seen=dict(stored.seen),
            used=dict(stored.used),
            machines=dict(stored.machines),
            restored=self.disk.restored,
            shown={
                event.id: dict(seen.shown)
                for group in self.disk.groups.values()
                for event in group.events
                if (seen := self.disk.seen_events.get(event.id)) and seen.shown is not None
            },
        )

    async def notify_positions(self) -> Mapping[str, NotifyPosition]:
        return dict(self.disk.notify_positions)

    async def save_notify_position(self, position: NotifyPosition) -> None:
        self.disk.notify_positions[position.name] = position

    async def delete_notify_position(self, name: str) -> None:
        self.disk.notify_positions.pop(name, None)

    async def copy(self, at: Time) -> Copy | None:
        del at
        return None


def _mark(record: Record) -> Mark:
    return (record.at, record.seq)


def _matches(record: Record, query: HistoryQuery) -> bool:
    mark = _mark(record)
    return (
        (query.machine is None or query.machine in (record.machine, *record.machines))
        and query.group in (None, record.group)
        and (query.groups is None or (bool(record.group) and record.group in query.groups))
        and query.host in (None, record.host)
        and query.event in (None, record.event)
        and (not query.what or record.what in query.what)
        and (query.since is None or record.at >= query.since)
        and (query.until is None or record.at < query.until)
        and (query.after is None or mark > query.after)
        and (query.before is None or mark < query.before)
        and (query.after_seq is None or record.seq > query.after_seq)
    )

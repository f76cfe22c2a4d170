"""The engine that forgets: everything in a `Disk` object, which a test may keep and reopen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile

import msgspec

from forewarn.core import Event, Group, Time
from forewarn.core.changes import EventMoved
from forewarn.core.history import HistoryWriter, Record, What
from forewarn.core.registry import ClockAccepted, Registry, StateRestored
from forewarn.core.retiming import Correction
from forewarn.store.base import BatchingStore
from forewarn.store.port import (
    Commit,
    Copy,
    HistoryQuery,
    Key,
    Keyed,
    Mark,
    PollSightings,
    StoreFailed,
)


class Disk:
    """What survives the death of a MemoryStore: what was persisted, and no more."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.registry = Registry({}, {}, {})
        self.commits: list[Commit] = []
        self.events: dict[str, Event] = {}  # all, in the order they were raised
        self.sightings = PollSightings(seen={})
        self.restored: Time | None = None
        self.keys: dict[tuple[str, str], Keyed] = {}
        self.history: list[Record] = []
        self.timeline: list[Record] = []  # the same in the order of time
        self.recorded = 0  # records ever

    def record(self, records: Iterable[Record]) -> None:
        for record in records:
            self.recorded += 1
            kept = msgspec.structs.replace(record, seq=self.recorded)
            self.history.append(kept)
            insort(self.timeline, kept, key=_mark)  # at the end, but for what was seen


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
        scribe = HistoryWriter(before, self._registry.hosts)
        self.disk.groups.update(after)
        for commit in commits:
            changed = [(entry.group, entry.items) for entry in commit.entries]
            self.disk.record(scribe.records(commit.at, changed, commit.puts))
            self.disk.commits.append(msgspec.structs.replace(commit, words=scribe.words()))
            for put in commit.puts:
                self.disk.registry.put(put)
                if isinstance(put, StateRestored):
                    self.disk.restored = commit.at
                if isinstance(put, ClockAccepted):
                    self._accept_clock(commit, put)
            if key := commit.key:
                self.disk.keys[key.owner, key.name] = Keyed(key, commit.seq, commit.at)
            for entry in commit.entries:
                for item in entry.items:
                    if isinstance(item, EventMoved):
                        self.disk.events[item.event.id] = item.event

    def _accept_clock(self, commit: Commit, accepted: ClockAccepted) -> None:
        disk, replace = self.disk, msgspec.structs.replace
        disk.sightings = replace(disk.sightings, served_until=commit.at, lost=commit.lost)
        if accepted.before <= commit.at:
            return
        correction = Correction(commit.at, accepted.before - commit.at)
        past = correction.past
        disk.history = [replace(record, at=past(record.at)) for record in disk.history]
        disk.timeline = sorted(disk.history, key=_mark)
        disk.commits = [replace(one, at=past(one.at)) for one in disk.commits]
        disk.events = {id: correction.event(event) for id, event in disk.events.items()}
        disk.keys = {name: replace(kept, at=past(kept.at)) for name, kept in disk.keys.items()}
        disk.restored = past(disk.restored)
        used = {token: past(at) for token, at in disk.sightings.used.items()}
        disk.sightings = replace(disk.sightings, used=used)

    async def commits(self, after: int) -> AsyncIterator[Commit]:
        while True:
            at = bisect_right(self.disk.commits, after, key=lambda commit: commit.seq)
            if at == len(self.disk.commits) or self.disk.commits[at].seq > self._seq:
                return
            yield self.disk.commits[at]
            after = self.disk.commits[at].seq

    async def keyed(self, owner: str, name: str) -> Keyed | None:
        return self.disk.keys.get((owner, name))

    async def answered(self, key: Key, status: int, answer: bytes) -> None:
        kept = self.disk.keys.get((key.owner, key.name))
        if kept is None or kept.key != key:
            raise StoreFailed(f"nothing was carried out under the key '{key.name}'")
        answered = msgspec.structs.replace(kept, status=status, answer=answer)
        self.disk.keys[key.owner, key.name] = answered

    async def records(self, ids: Collection[str]) -> Mapping[str, Event]:
        found = {id: self.disk.events.get(id) for id in ids}
        return {id: event for id, event in found.items() if event and event.status.over}

    async def past(
        self, *, group: str | None = None, limit: int = 100, before: str | None = None
    ) -> Sequence[Event]:
        if before is not None and before not in self.disk.events:
            return []
        raised = takewhile(lambda event: event.id != before, self.disk.events.values())
        over = [event for event in raised if event.status.over and group in (None, event.group)]
        return list(reversed(over))[:limit]

    async def caused_under(self, prefix: str) -> Sequence[Event]:
        return [event for event in self.disk.events.values() if event.cause.startswith(prefix)]

    async def ids(self, prefix: str, limit: int) -> Sequence[str]:
        return list(islice((id for id in self.disk.events if id.startswith(prefix)), limit))

    async def history(self, wanted: HistoryQuery) -> Sequence[Record]:
        if wanted.after_seq is not None:
            records: Iterable[Record] = self.disk.history
        else:  # whoever reads on begins where it was, instead of looking through what it has had
            timeline = self.disk.timeline
            first = bisect_right(timeline, wanted.after, key=_mark) if wanted.after else 0
            end = len(timeline)
            if wanted.before is not None:
                end = bisect_left(timeline, wanted.before, key=_mark)
            places = range(first, end)
            ordered = reversed(places) if wanted.newest_first else places
            records = (timeline[place] for place in ordered)
        return list(islice((r for r in records if _matches(r, wanted)), wanted.limit))

    async def prune(self, cutoff: Time, keeps: Callable[[Event], bool]) -> int:
        disk = self.disk
        over = {
            event.id
            for event in disk.events.values()
            if event.status.over and (event.ended_at or 0) < cutoff and not keeps(event)
        }
        kept = [r for r in disk.history if r.event not in over and (r.event or r.at >= cutoff)]
        gone = len(disk.history) - len(kept)
        disk.history = kept
        disk.timeline = sorted(kept, key=_mark)
        disk.events = {id: event for id, event in disk.events.items() if id not in over}
        needed = min(cutoff, self._oldest_needed(cutoff))
        old = 0
        for commit in disk.commits[:-1]:
            if commit.at >= needed:
                break
            old += 1
        del disk.commits[:old]
        oldest = disk.commits[0].seq if disk.commits else 0
        disk.keys = {name: kept for name, kept in disk.keys.items() if kept.seq >= oldest}
        return gone

    async def save(self, sightings: PollSightings) -> None:
        seen = {**self.disk.sightings.seen, **sightings.seen}
        used = {**self.disk.sightings.used, **sightings.used}
        self.disk.sightings = msgspec.structs.replace(sightings, seen=seen, firsts=(), used=used)
        if sightings.firsts:  # else there is no need to look through all that was recorded
            known = {record.event for record in self.disk.history if record.what is What.SEEN}
            self.disk.record(first for first in sightings.firsts if first.event not in known)

    async def sightings(self) -> PollSightings:
        return msgspec.structs.replace(self.disk.sightings, restored=self.disk.restored)

    async def copy(self, at: Time) -> Copy | None:
        del at
        return None


def _mark(record: Record) -> Mark:
    return (record.at, record.seq)


def _matches(record: Record, wanted: HistoryQuery) -> bool:
    mark = _mark(record)
    return (
        (wanted.machine is None or wanted.machine in (record.machine, *record.machines))
        and wanted.group in (None, record.group)
        and (wanted.groups is None or (bool(record.group) and record.group in wanted.groups))
        and wanted.host in (None, record.host)
        and wanted.event in (None, record.event)
        and (not wanted.what or record.what in wanted.what)
        and (wanted.since is None or record.at >= wanted.since)
        and (wanted.until is None or record.at < wanted.until)
        and (wanted.after is None or mark > wanted.after)
        and (wanted.before is None or mark < wanted.before)
        and (wanted.after_seq is None or record.seq > wanted.after_seq)
    )

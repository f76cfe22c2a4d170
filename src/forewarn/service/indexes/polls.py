"""Index of polls: which machine polled when, and when it was first shown each event.

In memory. When groups and machines last polled and when tokens were last used is saved every few
seconds; the last of them may be lost, except when the service is stopped. Machines are saved in
turn, a limited number at a time, so that the cost of a save does not grow with the fleet.

The history has one record for each event that was shown: by which machine first, and since when
each of the event's own machines has been shown it. It is written at once when the event is first
shown, so that the history has it before whatever it leads to, and again when more machines have
been shown it: with the next save, and at once when the event starts. Nodes report polls late, also
those of an event that is over by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from forewarn.core import Event, Group, Time, World
from forewarn.core.changes import Enabled, EventMoved, MachinePut, MachineRemoved
from forewarn.core.events import ApprovalKind
from forewarn.core.history import Record, RecordKind
from forewarn.core.history import seen as first_seen
from forewarn.core.lifecycle import Move
from forewarn.core.registry import ClockAccepted
from forewarn.core.retiming import Correction
from forewarn.core.time import Duration
from forewarn.service.indexes.unknown_callers import UnknownCallers
from forewarn.store.port import Commit, HistoryQuery, MachineSighting, PollSightings, Store
from forewarn.support import guard

SAVE_EVERY = 5.0  # seconds of guard time between two saves
MAX_UNSAVED = 10_000  # events that machines were shown and that are not saved yet
LOAD_SLICE = 64  # groups that are loaded before the event loop gets its turn
MACHINES_AT_ONCE = 2_000  # that a save looks at: 100,000 have had their turn after four minutes


class MachinePolls:
    """The polls of one machine."""

    __slots__ = (
        "answered",
        "count",
        "ignored",
        "incarnation",
        "interval",
        "last",
        "saved",
        "version",
    )

    def __init__(self) -> None:
        self.count = 0
        self.last: Time = 0
        self.version = ""
        self.incarnation = -1
        self.ignored = 0  # as in MachineSighting
        self.answered: Time | None = None
        self.interval: Duration = 0  # between its last two polls; 0: not known
        self.saved: Time = -1  # `last` when it was saved, unless something else has changed since

    @classmethod
    def stored(cls, sighting: MachineSighting) -> MachinePolls:
        polls = cls()
        polls.count, polls.last, polls.version = sighting.polls, sighting.polled, sighting.version
        polls.ignored, polls.answered = sighting.ignored, sighting.answered
        polls.saved = sighting.polled
        return polls

    def sighting(self) -> MachineSighting:
        return MachineSighting(
            polled=self.last,
            version=self.version,
            polls=self.count,
            ignored=self.ignored,
            answered=self.answered,
        )


class Shown(msgspec.Struct, frozen=True):
    """Since when machines have been shown an event."""

    since: dict[str, Time]
    complete: bool = True  # the event's machines that are missing have not been shown it


class _Sights:
    """When machines were first shown an event."""

    __slots__ = ("changes", "group", "late", "machines", "saved")

    def __init__(self, group: str, machines: dict[str, Time], *, late: bool = False) -> None:
        self.group = group
        self.machines = machines  # in the order in which it became known
        self.late = late  # the event was over before: the history may have more
        self.changes = 0
        self.saved: dict[str, Time] | None = None  # those that the history has

    def add(self, machine: str, at: Time) -> bool:
        """Note that a machine was shown the event. Returns whether that was not known."""
        if self.machines.get(machine, at + 1) <= at:
            return False
        self.machines[machine] = at
        self.changes += 1
        return True

    def of(self, machines: Iterable[str]) -> dict[str, Time]:
        return {name: self.machines[name] for name in machines if name in self.machines}


class PollIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._polls: dict[str, MachinePolls] = {}
        self.awaited: Container[str] = ()  # machines whose next poll is passed to `on_awaited`
        self.on_awaited: Callable[[str, Time], None] = lambda *_: None
        self._turn: Iterator[str] = iter(())  # the machines that are saved next
        self.saved_at: Time = 0  # when the store could last be written
        self._last_polls: dict[str, int] = {}
        self._unsaved: set[str] = set()
        self._sights: dict[str, _Sights] = {}  # by event, while it is active
        self._unsaved_sights: dict[str, _Sights] = {}  # by event, which may be over
        self.first_unsaved = asyncio.Event()  # set while one of them must be saved at once
        self.unknown_callers = UnknownCallers()
        self._uses: dict[str, Time] = {}  # by token
        self._unsaved_uses: set[str] = set()
        store.on_commit(self._on_commit)

    def seen(self, group: str) -> int:
        """Return when a machine of the group last polled, in time served."""
        return self._last_polls.get(group, 0)

    def polls(self, machine: str) -> MachinePolls | None:
        return self._polls.get(machine)

    @property
    def by_machine(self) -> Mapping[str, MachinePolls]:
        """The polls of all machines that have ever polled, as they change."""
        return self._polls

    def all(self) -> Collection[MachinePolls]:
        """Return the polls of all machines that have ever polled and are not gone."""
        return self._polls.values()

    def first_sights(self, event: str, machines: Collection[str]) -> dict[str, Time]:
        """Return when each of the machines was first shown the event, if it was."""
        sights = self._sights.get(event)
        return {} if sights is None else sights.of(machines)

    async def when_shown(self, event: Event, machines: Collection[str]) -> Shown:
        """Return when each of the machines was first shown an event, if it was. If it is over, or
        another process decides, that is known of the event's own machines, and of the first."""
        leadership = self._store.leadership
        if not event.status.over and (leadership is None or leadership.held()):
            return Shown(self.first_sights(event.id, machines))
        since: dict[str, Time] = {}
        if seen := await self._seen(event.id):
            since = {seen.by: seen.at} | dict(seen.shown or {})
        if unsaved := self._unsaved_sights.get(event.id):
            since |= unsaved.of(machines)
        return Shown(since, complete=seen is None or seen.shown is not None)

    async def _seen(self, event: str) -> Record | None:
        """Return what the history has about who was shown an event."""
        query = HistoryQuery(event=event, what=(RecordKind.SEEN,), limit=1)
        return next(iter(await self._store.history(query)), None)

    def used(self, token: str, at: Time) -> None:
        """Note that a token, given by its id, was used."""
        self._uses[token] = at
        self._unsaved_uses.add(token)

    def last_used(self, token: str) -> Time | None:
        return self._uses.get(token)

    def repeated(self, machine: str, times: int, before: Time) -> None:
        """Note that a machine has polled so many times more since `before`, as its node reports; 0:
        that is not known."""
        if polls := self._polls.get(machine):
            polls.count += times
            if before:
                polls.interval = (polls.last - before) // (times + 1)

    def alive(self, group: str, now: World) -> None:
        """Note a poll that was not answered with a document, because it was throttled."""
        self._last_polls[group] = now.served
        self._unsaved.add(group)

    def polled(
        self,
        machine: str,
        group: str,
        version: str,
        incarnation: int,
        ids: Collection[str],
        now: World,
    ) -> None:
        """Note a poll that was answered with a document, which lists the events `ids`.

        Called for every poll, thousands of times a second, so it shares no code.
        """
        at = now.at
        self._last_polls[group] = at - now.lost
        self._unsaved.add(group)
        polls = self._polls.get(machine)
        if polls is None:
            polls = self._polls[machine] = MachinePolls()
        polls.count += 1
        if polls.last:
            polls.interval = at - polls.last
        polls.last = at
        if machine in self.awaited:
            self.on_awaited(machine, at)
        if polls.incarnation != incarnation or polls.version != version:
            polls.incarnation, polls.version = incarnation, version
            self.shown(machine, group, ids, at)

    def shown(self, machine: str, group: str, ids: Iterable[str], at: Time) -> None:
        """Note that a machine was shown active events."""
        for id in ids:
            sights = self._sights.get(id)
            if sights is None:
                sights = self._sights[id] = _Sights(group, {})
                self.first_unsaved.set()
            if sights.add(machine, at):
                self._unsaved_sights[id] = sights

    def shown_before(self, machine: str, group: str, ids: Iterable[str], at: Time) -> None:
        """Note events that a machine was shown, as its node reports, and that are over by now: the
        history has a record of it, if there were such events."""
        for id in ids:
            sights = self._unsaved_sights.get(id)
            if sights is None and len(self._unsaved_sights) < MAX_UNSAVED:
                sights = self._unsaved_sights[id] = _Sights(group, {}, late=True)
            if sights is not None and sights.group == group:
                sights.add(machine, at)

    def _correct(self, clock: Correction) -> None:
        """Correct times that were noted while the clock was ahead."""
        for polls in self._polls.values():
            polls.last, polls.answered = clock.past(polls.last), clock.past(polls.answered)
            polls.saved = clock.past(polls.saved)
        self.unknown_callers.correct(clock)
        for token, at in self._uses.items():
            self._uses[token] = clock.past(at)
        for sights in (self._sights | self._unsaved_sights).values():
            sights.machines = {name: clock.past(at) for name, at in sights.machines.items()}

    async def load(self) -> PollSightings:
        sightings = await self._store.sightings()
        self._last_polls.update(sightings.seen)
        self._uses.update(sightings.used)
        for group in self._store.groups.values():
            for event in group.events:
                shown = sightings.shown.get(event.id)
                if shown is not None:
                    self._sights[event.id] = _Sights(group.name, dict(shown))
        names = list(self._store.groups) if sightings.machines else ()
        for n, name in enumerate(names, 1):
            if (present := self._store.groups.get(name)) is not None:  # it may be removed by now
                self._load_machines(present, sightings.machines)
            if n % LOAD_SLICE == 0:
                await guard.pause(0)
        return sightings

    def _load_machines(self, group: Group, sightings: Mapping[str, MachineSighting]) -> None:
        for machine in group.machines:
            sighting = sightings.get(machine.name)
            known = self._polls.get(machine.name)
            newer = known is not None and sighting is not None and known.last > sighting.polled
            if sighting is not None and machine.alive and not newer:
                self._polls[machine.name] = MachinePolls.stored(sighting)

    async def save_first_sightings(self, now: World) -> None:
        """Save which machines were shown events, and nothing that can wait."""
        await self._save(now, PollSightings(seen={}))

    async def save(self, now: World, *, all_machines: bool = False) -> None:
        """Save what has changed; of the machines, those whose turn it is, or all of them."""
        unsaved, self._unsaved = self._unsaved, set()
        uses, self._unsaved_uses = self._unsaved_uses, set()
        machines = {}
        for name in self._machines() if all_machines else self._next_machines():
            polls = self._polls.get(name)
            if polls is not None and polls.saved != polls.last:
                machines[name] = polls.sighting()
                polls.saved = polls.last
        try:
            await self._save(
                now,
                PollSightings(
                    seen={group: self._last_polls[group] for group in unsaved},
                    machines=machines,
                    served_until=now.at,
                    lost=now.lost,
                    steady_since=now.latest_interruption,
                    used={token: self._uses[token] for token in uses},
                ),
            )
        except BaseException:
            self._unsaved |= unsaved
            self._unsaved_uses |= uses
            for name in machines:
                if polls := self._polls.get(name):
                    polls.saved = -1
            raise

    async def _save(self, now: World, sightings: PollSightings) -> None:
        """Save sightings, and which machines were shown events."""
        self.first_unsaved.clear()
        unsaved = dict(self._unsaved_sights)
        changes = {id: sights.changes for id, sights in unsaved.items()}
        records = await self._records(unsaved)
        firsts = tuple(sorted(records, key=lambda record: record.at))
        await self._store.save(msgspec.structs.replace(sightings, firsts=firsts))
        for record in records:
            unsaved[record.event].saved = dict(record.shown or {})
        for id, sights in unsaved.items():
            if self._unsaved_sights.get(id) is sights and sights.changes == changes[id]:
                del self._unsaved_sights[id]
        self.saved_at = now.at

    def _machines(self) -> Iterator[str]:
        """Yield all machines, group by group: neighbours are close to each other in the store."""
        for name in list(self._store.groups):
            for machine in self._store.groups[name].machines:
                yield machine.name

    def _next_machines(self) -> list[str]:
        """Return the machines whose turn it is; after the last one, the first has its turn."""
        names = list(islice(self._turn, MACHINES_AT_ONCE))
        if not names:
            self._turn = self._machines()
            names = list(islice(self._turn, MACHINES_AT_ONCE))
        return names

    async def _records(self, unsaved: Mapping[str, _Sights]) -> list[Record]:
        """Return the records to save, also for events that are over by now."""
        events: dict[str, Event] = {}
        for id, sights in unsaved.items():
            state = self._store.groups.get(sights.group)
            if event := state.event(id) if state else None:
                events[id] = event
        if ended := [id for id in unsaved if id not in events]:
            events |= await self._store.ended_events(ended)
        records = []
        for id, event in events.items():
            sights = unsaved[id]
            if event.group != sights.group:
                continue  # made up by whoever has taken over a host
            shown = sights.of(event.resources)
            if sights.late and (seen := await self._seen(id)):
                shown |= {
                    name: min(at, shown.get(name, at)) for name, at in (seen.shown or {}).items()
                }
            if shown != sights.saved:
                first, at = next(iter(sights.machines.items()))
                records.append(first_seen(event, first, at, shown))
        return records

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        """Forget events that are over, and machines that are gone or no longer known."""
        for put in commit.puts:
            if isinstance(put, ClockAccepted) and put.before > commit.at:
                self._correct(Correction(commit.at, put.before - commit.at))
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case EventMoved(event=event):
                        if self._polls:
                            self._answered(item, commit.at)
                        if event.status.over:
                            self._sights.pop(event.id, None)
                        elif item.what is Move.START and event.id in self._unsaved_sights:
                            self.first_unsaved.set()
                    case Enabled():  # its documents are counted from 1 again
                        for machine in changed[entry.group].machines:
                            if polls := self._polls.get(machine.name):
                                polls.incarnation = -1
                    case MachineRemoved(name=name):  # also from one group to another
                        self._polls.pop(name, None)
                    case MachinePut(machine=machine) if machine.gone:
                        self._polls.pop(machine.name, None)
                    case MachinePut(machine=machine):
                        self.unknown_callers.forget(machine.addresses, machine.host)

    def _answered(self, item: EventMoved, at: Time) -> None:
        """Note which machine has answered an event, and which could have and did not."""
        event = item.event
        match item.what:
            case Move.APPROVE if event.approved and event.approved.kind is ApprovalKind.GUEST:
                answered = self._polls.get(event.approved.by)
            case Move.READY:
                answered = self._polls.get(item.by)
            case Move.START if event.approved is None:
                for name in self.first_sights(event.id, event.resources):
                    if polls := self._polls.get(name):
                        polls.ignored += 1
                        polls.saved = -1
                return
            case _:
                return
        if answered is not None:
            answered.answered, answered.saved = at, -1

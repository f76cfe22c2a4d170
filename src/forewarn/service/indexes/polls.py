"""Index of polls: which machine polled when, and when it was first shown each event.

In memory. Only when a group last polled, which machine was shown an event first, and when a token
was last used are saved every few seconds; the last of them may be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forewarn.core import Event, Group, Now, Time
from forewarn.core.changes import Enabled, EventMoved, MachinePut, MachineRemoved
from forewarn.core.history import Record
from forewarn.core.history import seen as first_seen
from forewarn.core.registry import ClockAccepted
from forewarn.core.retiming import Correction
from forewarn.store.port import Commit, PollSightings, Store

SAVE_EVERY = 5.0  # seconds of guard time between two saves


_NONE: dict[str, Time] = {}  # shared by all machines that were shown no event: most of a fleet


class MachinePolls:
    """The polls of one machine."""

    __slots__ = ("count", "first_sights", "incarnation", "last", "version")

    def __init__(self) -> None:
        self.count = 0
        self.last: Time = 0
        self.version = ""
        self.incarnation = -1
        self.first_sights = _NONE  # by event, while it is active


class PollIndex:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._polls: dict[str, MachinePolls] = {}
        self._last_polls: dict[str, int] = {}
        self._unsaved: set[str] = set()
        self._shown: set[str] = set()  # active events that a machine has been shown
        self._firsts: dict[str, tuple[str, str, Time]] = {}  # group, machine: not yet saved
        self._uses: dict[str, Time] = {}  # by token
        self._unsaved_uses: set[str] = set()
        store.on_commit(self._on_commit)

    def seen(self, group: str) -> int:
        """Return when a machine of the group last polled, in time served."""
        return self._last_polls.get(group, 0)

    def polls(self, machine: str) -> MachinePolls | None:
        return self._polls.get(machine)

    def first_sights(self, event: str, machines: Collection[str]) -> dict[str, Time]:
        """Return when each of the machines was first shown the event, if it was."""
        sights = {}
        for machine in machines:
            polls = self._polls.get(machine)
            if polls and event in polls.first_sights:
                sights[machine] = polls.first_sights[event]
        return sights

    def used(self, token: str, at: Time) -> None:
        """Note that a token, given by its id, was used."""
        self._uses[token] = at
        self._unsaved_uses.add(token)

    def last_used(self, token: str) -> Time | None:
        return self._uses.get(token)

    def alive(self, group: str, now: Now) -> None:
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
        now: Now,
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
        polls.last = at
        if polls.incarnation != incarnation or polls.version != version:
            polls.incarnation, polls.version = incarnation, version
            if ids and polls.first_sights is _NONE:
                polls.first_sights = {}
            for id in ids:
                polls.first_sights.setdefault(id, at)
                if id not in self._shown:
                    self._shown.add(id)
                    self._firsts[id] = group, machine, at

    def _correct(self, clock: Correction) -> None:
        """Correct times that were noted while the clock was ahead."""
        for polls in self._polls.values():
            polls.last = clock.past(polls.last)
            for id, at in polls.first_sights.items():
                polls.first_sights[id] = clock.past(at)
        for token, at in self._uses.items():
            self._uses[token] = clock.past(at)
        self._firsts = {id: (g, m, clock.past(at)) for id, (g, m, at) in self._firsts.items()}

    async def load(self) -> PollSightings:
        sightings = await self._store.sightings()
        self._last_polls.update(sightings.seen)
        self._uses.update(sightings.used)
        return sightings

    async def save(self, now: Now) -> None:
        unsaved, self._unsaved = self._unsaved, set()
        firsts, self._firsts = self._firsts, {}
        uses, self._unsaved_uses = self._unsaved_uses, set()
        try:
            await self._store.save(
                PollSightings(
                    seen={group: self._last_polls[group] for group in unsaved},
                    served_until=now.at,
                    lost=now.lost,
                    firsts=tuple(await self._records(firsts)),
                    used={token: self._uses[token] for token in uses},
                )
            )
        except BaseException:
            self._unsaved |= unsaved
            self._firsts = {**self._firsts, **firsts}
            self._unsaved_uses |= uses
            raise

    async def _records(self, firsts: Mapping[str, tuple[str, str, Time]]) -> list[Record]:
        """Return the records to save, also for events that are over by now."""
        events: dict[str, Event] = {}
        for id, (group, _, _) in firsts.items():
            state = self._store.groups.get(group)
            if event := state.event(id) if state else None:
                events[id] = event
        ended = [id for id in firsts if id not in events]
        if ended:
            events |= await self._store.ended_events(ended)
        records = [
            first_seen(events[id], m, at) for id, (_, m, at) in firsts.items() if id in events
        ]
        return sorted(records, key=lambda record: record.at)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        """Forget events that are over, and machines that are gone or no longer known."""
        for put in commit.puts:
            if isinstance(put, ClockAccepted) and put.before > commit.at:
                self._correct(Correction(commit.at, put.before - commit.at))
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case EventMoved(event=event) if event.id in self._shown and event.status.over:
                        self._shown.discard(event.id)
                        for machine in changed[entry.group].machines:
                            if polls := self._polls.get(machine.name):
                                polls.first_sights.pop(event.id, None)
                    case Enabled():  # its documents are counted from 1 again
                        for machine in changed[entry.group].machines:
                            if polls := self._polls.get(machine.name):
                                polls.incarnation = -1
                    case MachineRemoved(name=name):  # also from one group to another
                        self._polls.pop(name, None)
                    case MachinePut(machine=machine) if machine.gone:
                        self._polls.pop(machine.name, None)

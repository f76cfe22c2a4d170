"""Counts of machines by what happens to them, for each host and each group by update domain, kept
up to date by every commit from the first time that somebody asks for them, so that a picture of a
large fleet needs no walk over its machines.

Only that a machine falls silent, or asks again, changes without a commit: it is looked for now and
then, the larger the fleet, the less often.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from forewarn.core import Event, Group, Machine, Status, Time
from forewarn.core.group import replaced
from forewarn.core.registry import ClockAccepted, GroupForgotten
from forewarn.service.indexes.coverage import Coverage, coverage_of
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Commit, Store
from forewarn.support import guard

LOOK_SLICE = 250  # machines that are looked at in one iteration of the event loop
LOOK_EVERY = 0.0006  # seconds for each machine of the fleet: once a minute for 100,000 machines


class MachineState(enum.Enum):
    """What happens to a machine. If several apply, the first one counts."""

    GONE = "gone"  # it was evicted or deleted
    HELD = "held"  # an event waits for an operator, because nobody knows whether it happened
    STARTED = "started"  # an event has started
    SCHEDULED = "scheduled"  # an event is announced
    SILENT = "silent"  # it has not asked for its events in the last hour, or never
    QUIET = "quiet"  # nothing is planned, and it asks for its events


class OverviewBy(enum.Enum):
    HOST = "host"
    GROUP = "group"


class RowState(enum.Enum):
    """What is most notable about a host or group. If several apply, the first one counts."""

    UNHEALTHY = "unhealthy"  # a host that is degraded, failed or unreachable
    HELD = "held"  # and others: it has a machine in this state
    STARTED = "started"
    SCHEDULED = "scheduled"
    CORDONED = "cordoned"  # a host
    SILENT = "silent"
    QUIET = "quiet"


class RowOrder(enum.Enum):
    NAME = "name"
    STATE = "state"  # what is most notable first


class StateCounts(msgspec.Struct, frozen=True):
    """How many machines have each state."""

    gone: int = 0
    held: int = 0
    started: int = 0
    scheduled: int = 0
    silent: int = 0
    quiet: int = 0

    def plus(self, state: MachineState, number: int) -> StateCounts:
        counts = [self.gone, self.held, self.started, self.scheduled, self.silent, self.quiet]
        counts[_PLACES[state]] += number
        return StateCounts(*counts)


_PLACES = {state: StateCounts.__struct_fields__.index(state.value) for state in MachineState}
_NONE = StateCounts()


ByDomain: TypeAlias = Mapping[int, StateCounts]  # is not changed, but replaced
Table: TypeAlias = dict[str, ByDomain]  # by host, or by group


class Overview:
    def __init__(self, store: Store, poll_index: PollIndex) -> None:
        self._store = store
        self._poll_index = poll_index
        self.hosts: Table = {}  # with machines on them
        self.groups: Table = {}
        self._states: dict[str, MachineState] = {}  # by machine: as it is counted
        self._indexed: dict[str, tuple[tuple[Machine, ...], tuple[Event, ...]]] = {}
        self._looked = float("-inf")  # when polls were last looked at
        self._follows = False  # has anybody asked for the counts?
        self._refreshing = asyncio.Lock()
        store.on_commit(self._on_commit)

    async def refresh(self, at: Time) -> None:
        """Take into account what has changed without a commit; the first time, everything."""
        async with self._refreshing:
            self._follows = True
            await self._load(at)
            await self._look_at_polls(at)

    async def _load(self, at: Time) -> None:
        """Count the machines of groups that are not known yet: nearly always there are none."""
        if not self._indexed:
            self._looked = guard.monotonic()  # at the polls of all
        counted = 0
        for name in self._store.groups.keys() - self._indexed.keys():
            if group := self._store.groups.get(name):
                self._update([group], at)
                counted += len(group.machines)
                if counted >= LOOK_SLICE:
                    counted = 0
                    await guard.pause(0)

    async def _look_at_polls(self, at: Time) -> None:
        if guard.monotonic() - self._looked < LOOK_EVERY * len(self._states):
            return
        self._looked = guard.monotonic()
        looked_at = 0
        for name in list(self._store.groups):
            group = self._store.groups.get(name)
            for machine in group.machines if group else ():
                if self._states.get(machine.name) in (MachineState.SILENT, MachineState.QUIET):
                    self._count(machine, name, (), at)
            looked_at += len(group.machines) if group else 0
            if looked_at >= LOOK_SLICE:
                looked_at = 0
                await guard.pause(0)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        if not self._follows:
            return
        if any(isinstance(put, ClockAccepted) for put in commit.puts):  # times have changed
            for table in (self.hosts, self.groups, self._states, self._indexed):
                table.clear()
            return
        forgotten = [put.name for put in commit.puts if isinstance(put, GroupForgotten)]
        self._update([*changed.values(), *(Group(name=name) for name in forgotten)], commit.at)

    def _update(self, groups: Iterable[Group], at: Time) -> None:
        changes: list[tuple[Group, set[str]]] = []
        for group in groups:  # a machine may leave one of them and come to another
            machines, events = self._indexed.pop(group.name, ((), ()))
            concerned: set[str] = set()
            if machines is not group.machines:
                gone, come = replaced(machines, group.machines)
                for machine in gone:
                    self._uncount(machine, group.name)
                concerned.update(machine.name for machine in come)
            if events is not group.events:
                for changed in replaced(events, group.events):
                    concerned.update(name for event in changed for name in event.resources)
            if group != Group(name=group.name):  # it was not forgotten
                self._indexed[group.name] = group.machines, group.events
            changes.append((group, concerned))
        for group, names in changes:
            for machine in group.named(names).values() if names else ():
                self._count(machine, group.name, group.events, at)

    def _count(self, machine: Machine, group: str, events: Iterable[Event], at: Time) -> None:
        state = _state(machine, events, self._poll_index, at)
        if self._states.get(machine.name) is not state:
            self._uncount(machine, group)
            self._states[machine.name] = state
            self._add(machine, group, state, 1)

    def _uncount(self, machine: Machine, group: str) -> None:
        if (state := self._states.pop(machine.name, None)) is not None:
            self._add(machine, group, state, -1)

    def _add(self, machine: Machine, group: str, state: MachineState, number: int) -> None:
        _add(self.groups, group, machine.update_domain, state, number)
        if machine.host:
            _add(self.hosts, machine.host, machine.update_domain, state, number)


def count(groups: Iterable[Group], poll_index: PollIndex, at: Time) -> tuple[Table, Table]:
    """Count the machines of some groups, by host and by group."""
    by_host: Table = {}
    by_group: Table = {}
    for group in groups:
        for machine in group.machines:
            state, domain = _state(machine, group.events, poll_index, at), machine.update_domain
            _add(by_group, group.name, domain, state, 1)
            if machine.host:
                _add(by_host, machine.host, domain, state, 1)
    return by_host, by_group


def _state(
    machine: Machine, events: Iterable[Event], poll_index: PollIndex, at: Time
) -> MachineState:
    if machine.gone:
        return MachineState.GONE
    if own := [event for event in events if machine.name in event.resources]:
        if any(event.held for event in own):
            return MachineState.HELD
        if any(event.status is Status.STARTED for event in own):
            return MachineState.STARTED
        return MachineState.SCHEDULED
    listens = coverage_of(poll_index.polls(machine.name), at) is Coverage.LISTENING
    return MachineState.QUIET if listens else MachineState.SILENT


def _add(table: Table, name: str, domain: int, state: MachineState, number: int) -> None:
    domains = table.get(name, {})
    counts = domains.get(domain, _NONE).plus(state, number)
    domains = {**domains, domain: counts}
    if counts == _NONE:
        del domains[domain]
    if domains:
        table[name] = domains
    else:
        del table[name]

"""Machines that are waited for, or are not back: notes when they poll, and has it decided.

What is waited for is in the state; that a machine has polled since is known from the index of
polls, also after a restart and a take-over. Decisions read `heard`, which a Tick brings about.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from forewarn.core import Group, Time
from forewarn.core.changes import EventMoved, MachinePut, MachineRemoved
from forewarn.core.commands import Heard
from forewarn.core.events import Event
from forewarn.core.fleet import Machine
from forewarn.core.lifecycle import Move
from forewarn.core.time import SECOND, Duration
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.polls import PollIndex
from forewarn.store.port import Commit, Store, StoreFailed
from forewarn.support import guard

LOAD_SLICE = 64  # groups that are looked at before the event loop gets its turn
TRY_AGAIN: Duration = SECOND  # after which a change that could not be stored is decided again


class Returns:
    def __init__(
        self, store: Store, polls: PollIndex, writer: Writer, scheduler: Scheduler
    ) -> None:
        self._store = store
        self._polls = polls
        self._writer = writer
        self._scheduler = scheduler
        self._lost: dict[str, str] = {}  # by machine that is not back: the cause of its event
        self._not_back: dict[str, dict[str, Time]] = {}  # by cause: such machines
        self._awaited: dict[str, tuple[str, Time]] = {}  # by machine: its group, and since when
        self._back: dict[str, list[str]] = {}  # by group: machines that were not back, and are
        self.heard: dict[str, Time] = {}
        polls.awaited, polls.on_awaited = self._awaited, self._polled
        writer.follow_polls(polls.by_machine, self.heard, self._not_back)
        store.on_own_commit(self._on_commit)

    async def load(self) -> None:
        """Begin with what is stored, before the first decision, in turns with everything else."""
        for known in (self._awaited, self.heard, self._lost, self._not_back):
            known.clear()
        for n, group in enumerate(list(self._store.groups.values()), 1):
            if n % LOAD_SLICE == 0:
                await guard.pause(0)
            for machine in group.machines:
                if machine.not_back is not None:  # of very many, few
                    self._await_machine(group.name, machine)
            for event in group.events:
                self._await_event(event)
        for name in list(self._awaited):
            if polls := self._polls.polls(name):
                self._polled(name, polls.last)

    def _await_event(self, event: Event) -> None:
        if event.waiting is not None:
            for name in event.waiting.machines:
                self._awaited[name] = event.group, event.waiting.since

    def _await_machine(self, group: str, machine: Machine) -> None:
        name, lost = machine.name, machine.not_back if machine.alive else None
        if lost is not None:
            self._awaited[name] = group, lost.since
        if (cause := self._lost.pop(name, "")) and (lost is None or lost.cause != cause):
            self._come_back(name, cause)
        if lost is not None and lost.cause:
            self._lost[name] = lost.cause
            self._not_back.setdefault(lost.cause, {})[name] = lost.since

    def _come_back(self, name: str, cause: str) -> None:
        """Go on with what has paused because of a machine."""
        machines = self._not_back.get(cause, {})
        machines.pop(name, None)
        if not machines:
            self._not_back.pop(cause, None)
        for group in self._store.groups.values():
            if any(event.cause == cause for event in group.events):
                self._scheduler.look_at(group.name)

    def _polled(self, name: str, at: Time) -> None:
        """Note a poll of a machine that is waited for."""
        group, since = self._awaited[name]
        if at < since:
            return  # a node has reported it late
        del self._awaited[name]
        self.heard[name] = at
        state = self._store.groups.get(group)
        machine = None if state is None else state.machine(name)
        if machine is not None and machine.not_back is not None:
            self._back.setdefault(group, []).append(name)
            self._record(group, after=0)
        self._scheduler.look_at(group)

    def _record(self, group: str, after: Duration) -> None:
        at = self._writer.instant().at + after
        self._scheduler.alarm(f"back/{group}", at, partial(self._record_back, group))

    async def _record_back(self, group: str) -> None:
        machines = self._back.pop(group, [])
        try:
            await self._writer.submit(group, Heard(machines=tuple(machines)))
        except StoreFailed:
            self._back.setdefault(group, []).extend(machines)
            self._record(group, after=TRY_AGAIN)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case EventMoved(what=what, event=event) if event.waiting is not None:
                        if what is Move.FINISH:
                            self._forget(*event.waiting.machines)
                        elif what in (Move.ANSWER, Move.RETIME):
                            self._await_event(event)
                    case MachineRemoved(name=name):
                        self._forget(name)
                        if cause := self._lost.pop(name, ""):
                            self._come_back(name, cause)
                    case MachinePut(machine=machine):
                        self._await_machine(entry.group, machine)

    def _forget(self, *machines: str) -> None:
        for name in machines:
            self._awaited.pop(name, None)
            self.heard.pop(name, None)

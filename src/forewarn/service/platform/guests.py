"""The verbs of guests: listen, approve, postpone, and report whether a machine is ready.

What operators can do is `platform.py`. Requests and responses are the metadata endpoint's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from forewarn.core import Changes, Event, Refused, Status
from forewarn.core import commands as c
from forewarn.core.refusal import Reason
from forewarn.core.time import Time
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.machines import MachineIndex
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.platform.postponement import plan_postponement
from forewarn.store.port import Store
from forewarn.support.text import storable


class Guests:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        feed: Feed,
        poll_index: PollIndex,
        machine_index: MachineIndex,
    ) -> None:
        self._store = store
        self._feed = feed
        self.writer = writer
        self.poll_index = poll_index
        self.machine_index = machine_index
        # Threads that look up thousands of ids at once would hold up all others. Of each machine
        # one request waits for its turn, however many it has sent.
        self._lookup = asyncio.Lock()
        self._lookups_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def enable(self, group: str) -> None:
        """Return once the group has a document, after one of its machines has asked for it."""
        while True:
            await self.writer.submit(group, c.Enable())
            state = self._store.groups[group]
            if state.enabled:
                return
            if state.enabling_until is not None:  # otherwise it was disabled at the same moment
                await self._feed.changed(group)

    async def approve(self, machine: str, group: str, ids: Sequence[str]) -> Changes | Refused:
        """Approve events on behalf of a machine.

        An id that is not active may belong to an event that is over, which guests may still
        approve. Those are looked up, and again if one that was active has ended meanwhile.
        """
        ids = tuple(map(storable, ids))
        over: frozenset[str] = frozenset()
        while True:
            decision = await self.writer.submit(group, c.Approve(ids=ids, by=machine, over=over))
            if not isinstance(decision, Refused) or decision.reason is not Reason.UNKNOWN:
                return decision
            own = self._lookups_of.setdefault(machine, asyncio.Lock())
            async with own, self._lookup:
                listed = {event.id for event in self._store.groups[group].events if event.listed}
                missing = set(ids) - listed - over
                records = await self._store.ended_events(missing)
            ended = {id for id, event in records.items() if event.group == group and event.listed}
            if missing - ended:
                return decision
            over |= ended

    async def prepare(
        self, machine: str, group: str, id: str, ready: bool, note: str
    ) -> Changes | Refused:
        """Record whether a machine is ready for an event."""
        command = c.Prepare(id=id, machine=machine, ready=ready, note=storable(note))
        return await self.writer.submit(group, command)

    async def postpone(self, machine: str, event: Event, until: Time) -> Refused | None:
        """Postpone an event on behalf of a machine, as far as the policy of its group allows.
        Repeated, it changes nothing."""
        if event.status is Status.SCHEDULED and event.not_before >= until:
            return None
        done = await self.writer.commit(
            lambda states: plan_postponement(states, event, machine, self.writer.now(), until)
        )
        return done if isinstance(done, Refused) else None

    def listed(self, group: str, id: str) -> Event | None:
        """Return the event if it is in the group's document now."""
        state = self._store.groups[group]
        event = state.event(id) if state.enabled else None
        return event if event is not None and event.listed else None

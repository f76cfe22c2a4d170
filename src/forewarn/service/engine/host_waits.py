"""Events that wait for a host which can take their machines.

That none could when an attempt began is on record. Nothing more is until one can: then another
attempt is made. Whether one can is read from what is committed, a while after something has
changed.
"""

from __future__ import annotations

from forewarn.core import Event, Group
from forewarn.core.commands import Retry
from forewarn.core.deciding.attempts import MAX_BACK_OFF, MIN_BACK_OFF
from forewarn.core.time import Duration
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.placement import must_move
from forewarn.store.port import Store

ALARM = "placement/waiting"


class HostWaits:
    def __init__(
        self, store: Store, writer: Writer, scheduler: Scheduler, host_index: HostIndex
    ) -> None:
        self._store = store
        self._writer = writer
        self._scheduler = scheduler
        self._host_index = host_index
        self._waiting: dict[str, str] = {}  # events, with their groups
        self._soon = False  # they are looked at soon, because something has changed
        store.on_own_commit(self._changed)
        host_index.unreachable.on_change(self._changed)

    def resume(self) -> None:
        """Go on waiting for what an earlier process has waited for."""
        for group in self._store.groups.values():
            for event in group.events:
                if event.attempt is not None and event.attempt.no_host:
                    self._waiting[event.id] = group.name
        self._changed()

    def add(self, id: str, group: str) -> None:
        """Have an event wait, of which that is on record."""
        self._waiting[id] = group
        self._changed()

    def _changed(self, *_: object) -> None:
        if self._waiting and not self._soon:
            self._soon = True
            self._look_after(MIN_BACK_OFF)

    def _look_after(self, pause: Duration) -> None:
        now = self._writer.now()
        self._scheduler.alarm(ALARM, now.at + now.rules.paced(pause), self._look)

    async def _look(self) -> None:
        """Have those go on for which there is a host, one after the other: each reserves one."""
        self._soon = False
        try:
            for id, name in list(self._waiting.items()):
                group = self._store.groups.get(name)
                event = group.event(id) if group is not None else None
                if event is None or event.attempt is None or not event.attempt.no_host:
                    del self._waiting[id]
                elif group is not None and self._can_go_on(group, event):
                    await self._writer.submit(name, Retry(id=id, by=""))
        finally:
            if self._waiting and not self._soon:
                self._look_after(MAX_BACK_OFF)

    def _can_go_on(self, group: Group, event: Event) -> bool:
        machines, hosts = group.concerned(event), self._store.registry.hosts
        if not all(must_move(event, machine, hosts) for machine in machines):
            return True
        unsuitable = event.attempt.unsuitable if event.attempt is not None else ()
        offered = self._host_index.placement.alternatives(group, machines, 1, unsuitable)
        return any(offered.values())

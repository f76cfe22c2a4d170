"""The one coroutine that waits on domain time. It owns no deadlines: it reads them off the groups.

Woken by every commit and every move of the clock, it sends a Tick to each group that is due, and
calls the functions whose alarm is due.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from forewarn.core import Changes, Group, Time, due
from forewarn.core.changes import EventMoved
from forewarn.core.commands import Tick
from forewarn.core.deciding.joint import JointsDue
from forewarn.core.registry import (
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    HostPut,
    Put,
)
from forewarn.service.engine.clock import Clock, Interruption, VirtualClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

# Changes because of which an event of any group may be allowed to start, or no longer.
ANY_GROUP = (HaltPut, HaltReleased, ConfigurationPut, ConfigurationRemoved)
RETRY_AFTER = 1.0  # seconds of guard time before a Tick that could not be stored is sent again
READ_SLICE = 256  # groups whose deadlines are read in one iteration of the event loop

log = logger("forewarn")


class Scheduler:
    def __init__(
        self,
        store: Store,
        writer: Writer,
        clock: Clock,
        ledger: Ledger,
        host_index: HostIndex,
        seen: Callable[[str], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._ledger = ledger
        self._host_index = host_index
        self._seen = seen
        self._due: dict[str, Time] = {}
        self._heap: list[tuple[Time, str]] = []
        self._alarms: dict[str, tuple[Time, Callable[[], Awaitable[None]]]] = {}
        self._reached: dict[str, None] = {}  # hosts that were cut off, or have joined, meanwhile
        self._woken = asyncio.Event()
        self._failed = LogThrottle()
        self._uninformed: dict[str, tuple[str, ...]] = {}  # as of the deadlines that were read
        self._firing: Time | None = None  # the first of the deadlines that are being processed
        self._begun = False
        self.running = False
        store.on_own_commit(self._on_commit)
        host_index.unreachable.on_change(self._on_reach)
        clock.on_interruption(self._on_interruption)
        if isinstance(clock, VirtualClock):
            clock.on_move(self._wake)

    async def begin(self) -> None:
        """Read every group's deadline for the first time, in turns with everything else."""
        self._begun = True
        self._uninformed = self._host_index.uninformed
        await self._read_in_turns(list(self._store.groups))
        self._wake()  # some may have passed, which nobody who moves a virtual clock overtakes

    def reread(self) -> None:
        """Read every group's deadline anew, as after an interruption."""
        self._due.clear()
        self._heap.clear()
        self._firing = None
        self._reached.clear()
        self._uninformed = self._host_index.uninformed
        self._read(self._store.groups.values())
        for name, (at, _) in self._alarms.items():
            self._set(name, at)
        self._wake()

    def alarm(self, name: str, at: Time | None, call: Callable[[], Awaitable[None]]) -> None:
        """Call a function once at an instant, instead of what was set under this name before; None
        only clears that. Names contain a slash, so that none is a group's."""
        self._alarms.pop(name, None)
        if at is not None:
            self._alarms[name] = at, call
        self._set(name, at)
        self._wake()

    def look_at(self, group: str) -> None:
        """Read a group's deadline anew, because its machines have polled."""
        if (state := self._store.groups.get(group)) is not None:
            self._read([state])
            self._wake()

    def next_due(self) -> Time | None:
        while self._heap:
            at, name = self._heap[0]
            if self._due.get(name) == at:
                return at
            heapq.heappop(self._heap)
        return None

    def oldest_due(self) -> Time | None:
        """The first deadline that has not been processed yet, even if it is being processed."""
        times = [at for at in (self._firing, self.next_due()) if at is not None]
        return min(times, default=None)

    @property
    def deadlines(self) -> int:
        return len(self._due)

    async def run(self) -> None:
        self.running = True
        try:
            await self._run()
        finally:
            self.running = False

    async def _run(self) -> None:
        while True:
            await self._clock.wait(self.next_due(), self._woken)
            held = self._woken.is_set()
            self._woken.clear()
            try:
                await self._fire()
            except Exception:
                log.exception("unexpected error in the scheduler; all deadlines are read again")
                await guard.pause(RETRY_AFTER)
                self.reread()
            finally:
                if held:
                    self._ledger.release("scheduler")

    async def _fire(self) -> None:
        while True:
            await self._read_reached()
            now = self._writer.instant()
            names = []
            self._firing = self.next_due()
            while (at := self.next_due()) is not None and at <= now.at:
                name = heapq.heappop(self._heap)[1]
                del self._due[name]  # an older entry for the same instant is void from here on
                names.append(name)
            if not names:
                self._firing = None
                return
            outcomes = await asyncio.gather(*map(self._tick, names))
            for name, outcome in zip(names, outcomes, strict=True):
                if outcome is not True and name in self._store.groups:
                    # Not stored, or another commit came first: read its deadline again.
                    self._read([self._store.groups[name]])
            if any(self._due.get(name, now.at + 1) <= now.at for name in names):
                await guard.pause(RETRY_AFTER)  # still overdue: do not spin

    async def _tick(self, name: str) -> bool:
        if name in self._alarms:
            _, call = self._alarms.pop(name)
            try:
                await call()
            except Exception:
                log.exception("unexpected error in a scheduled call", alarm=name)
            return True
        try:
            decision = await self._writer.submit(name, Tick(seen=self._last_seen(name)))
        except Exception as failure:
            if times := self._failed.record():
                log.error(
                    "a deadline could not be processed yet",
                    group=name,
                    why=repr(failure),
                    times=times,
                )
            return False
        return isinstance(decision, Changes) and bool(decision.items)

    def _last_seen(self, name: str) -> int:
        """Return when a machine of the group polled last, in time served. While its hosts were
        unreachable, that was not known."""
        group, seen = self._store.groups.get(name), self._seen(name)
        heard = self._host_index.unreachable.heard_since(group) if group is not None else 0
        return max(seen, heard - self._writer.now().lost) if heard else seen

    def _on_reach(self, host: str) -> None:
        self._reached[host] = None
        self._wake()

    async def _read_reached(self) -> None:
        """Read the deadlines again that depend on whether hosts can be reached: once for each
        group, since thousands of hosts that share groups may join at once."""
        while self._reached:
            hosts, self._reached = self._reached, {}
            names = sorted(set().union(*map(self._host_index.groups_that_may_be_on, hosts)))
            await self._read_in_turns(names)

    def _on_interruption(self, _: Interruption) -> None:
        if self._begun:  # a take-over after an outage is one, too
            self.reread()

    async def _read_in_turns(self, names: Sequence[str]) -> None:
        for n in range(0, len(names), READ_SLICE):
            groups = map(self._store.groups.get, names[n : n + READ_SLICE])
            self._read(group for group in groups if group is not None)
            if n + READ_SLICE < len(names):
                await guard.pause(0)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        if commit.puts and self._concern_any_group(commit.puts):
            self.reread()
            return
        names = dict.fromkeys(changed)
        for host in self._hosts_warned_or_not():
            for event in self._host_index.maintenance_of(host):
                names |= dict.fromkeys(event.joint.groups if event.joint else ())
        for entry in commit.entries:
            for item in entry.items:
                # The events of a joint maintenance wait for each other.
                if isinstance(item, EventMoved) and item.event.joint is not None:
                    names |= dict.fromkeys(item.event.joint.groups)
        self._read(self._store.groups[name] for name in names)
        self._wake()

    def _concern_any_group(self, puts: Iterable[Put]) -> bool:
        by_host = any(halt.host_label for halt in self._store.registry.halts.values())
        watched = (*ANY_GROUP, HostPut) if by_host else ANY_GROUP
        return any(isinstance(put, watched) for put in puts)

    def _hosts_warned_or_not(self) -> list[str]:
        """Return the hosts on which other machines than before are uninformed."""
        before, after = self._uninformed, self._host_index.uninformed
        self._uninformed = after
        if before is after:
            return []
        return [host for host in before | after if before.get(host) != after.get(host)]

    def _read(self, groups: Iterable[Group]) -> None:
        now = self._writer.now()
        joints = JointsDue(self._store.groups, now)
        for group in groups:
            instants = (due(group, now), joints.next(group) if group.events else None)
            self._set(group.name, min((at for at in instants if at is not None), default=None))

    def _set(self, name: str, at: Time | None) -> None:
        if at is None:
            self._due.pop(name, None)
        elif self._due.get(name) != at:
            self._due[name] = at
            heapq.heappush(self._heap, (at, name))

    def _wake(self) -> None:
        if not self._woken.is_set():
            self._ledger.take("scheduler")
            self._woken.set()

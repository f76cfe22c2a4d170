"""Events from raise to finish, as fast as they go: how many decisions a second, and at what cost.

A caller announces an event (the driver is asked), a machine of the group approves it, it starts,
is carried out and finishes; then the caller takes its next machine.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from itertools import count

import msgspec

from bench.platform.meter import cpu, stopwatch
from bench.poll.processes import Failed
from forewarn.core import EventType, Group, Refused
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.node import Node
from forewarn.store.port import Commit
from forewarn.support import guard


class Round(msgspec.Struct, frozen=True):
    callers: int
    seconds: float
    events: int
    decisions: int
    batches: int
    cpu: float  # seconds, of all threads
    latency: float  # of an event from raise to finish, the median in seconds
    sizes: list[int]  # decisions in each batch

    @property
    def rate(self) -> float:
        return self.decisions / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of CPU for an event."""
        return self.cpu / self.events * 1e6


class Callers:
    def __init__(self, node: Node, machines: Sequence[str] = ()) -> None:
        """With some machines, or with all."""
        self._node = node
        self._machines = machines or [
            m.name for g in node.store.groups.values() for m in g.machines
        ]
        self._ends: dict[str, asyncio.Future[None]] = {}
        self._took: list[float] = []
        self._sizes: list[int] = []  # of batches
        self.decided = 0
        self.raised: dict[str, float] = {}  # when everybody had been told, for a while
        node.store.on_commit(self._on_commit)
        node.store.on_batch(self._count)

    async def run(self, callers: int, seconds: float, type: EventType) -> Round:
        self._sizes.clear()
        self._took.clear()
        before = self.decided
        tasks = guard.Tasks()
        began, used = stopwatch(), cpu()
        until = began + seconds
        await asyncio.gather(
            *(
                tasks.start(self._call(type, n, callers, until), f"caller {n}")
                for n in range(callers)
            )
        )
        return Round(
            callers,
            stopwatch() - began,
            len(self._took),
            self.decided - before,
            len(self._sizes),
            cpu() - used,
            statistics.median(self._took),
            list(self._sizes),
        )

    async def _call(self, type: EventType, number: int, callers: int, until: float) -> None:
        spread = len(self._machines) // callers  # so that they meet in few groups
        for n in count():
            if stopwatch() >= until:
                return
            began = stopwatch()
            await self.event(self._machines[(number * spread + n) % len(self._machines)], type)
            self._took.append(stopwatch() - began)

    async def event(self, machine: str, type: EventType = EventType.FREEZE) -> None:
        platform = self._node.platform
        raised = await platform.schedule(type=type, machines=(machine,), by="bench")
        if isinstance(raised, Refused):
            raise Failed(raised.message)
        event = raised.event
        ends = self._ends[event.id] = asyncio.get_running_loop().create_future()
        approved = await self._node.guests.approve(machine, event.group, [event.id])
        if isinstance(approved, Refused):
            raise Failed(approved.message)
        await ends

    def _count(self, seconds: float, works: int, commits: int, problem: str) -> None:
        self._node.metrics.committed(seconds, works, commits, problem)
        if commits:
            self._sizes.append(commits)

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        del changed
        for entry in commit.entries:
            self.decided += 1
            for item in entry.items:
                if not isinstance(item, EventMoved):
                    continue
                if item.what is Move.RAISE:
                    self.raised[item.event.id] = stopwatch()
                elif item.event.status.over:
                    self.raised.pop(item.event.id, None)
                    ends = self._ends.pop(item.event.id, None)
                    if ends is not None and not ends.done():
                        ends.set_result(None)

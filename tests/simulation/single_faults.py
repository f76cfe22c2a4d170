"""One fault at a time, at any moment of a change, while the guests of all hosts poll: no poll may
wait for more than a second, but for those that are named here.

- A host that is cut off between `Hide` and `Shown`, a round trip in which nothing is written to a
  disk, or all hosts, if control is killed there: a node that was asked to hide what was before
  cannot know whether others show the change already, or again what was before.
- A host whose line takes seconds for every message, when it joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from forewarn.core.time import SECOND
from forewarn.metadata.publishing.host_nodes import SHOWN_WITHIN
from forewarn.support import guard
from forewarn.wire.versions import NEWEST
from simulation.host_lines import DISK, MAX_DRIFT
from simulation.hosts import CutOff, HostNode, Hosts
from simulation.world import Kill, Killed

CHANGE = 0.15  # seconds that a change takes on lines that work
LASTS = 15.0  # seconds that a fault lasts
POLL_EVERY = 0.2  # seconds
PATIENCE = 60.0  # seconds that a guest waits for an answer
LONGEST = SHOWN_WITHIN / (1 - MAX_DRIFT)  # seconds, with a clock that is slow
MAX_WAIT = 1.0  # seconds that a poll may wait
AWAY = 10.0  # seconds until another control node has taken over
SLOW = 3.0  # seconds that messages take on a line that is slow
MACHINES = ("sql-0", "sql-1", "sql-2")  # one on each host

Fault: TypeAlias = Callable[["SingleFaults", HostNode], Awaitable[None]]


async def cut_off(_: SingleFaults, node: HostNode) -> None:
    node.link.stall("up", "down")


async def cannot_send(_: SingleFaults, node: HostNode) -> None:
    node.link.stall("up")


async def cannot_receive(_: SingleFaults, node: HostNode) -> None:
    node.link.stall("down")


async def loses_its_line(_: SingleFaults, node: HostNode) -> None:
    if node.end is not None:
        node.end.abort()


async def is_lost_to_control(_: SingleFaults, node: HostNode) -> None:
    """Control is told that the line is over, and the node is not."""
    for line in node.link.lines:
        line.control.vanish()
    node.link.stall("up", "down")


async def is_killed(_: SingleFaults, node: HostNode) -> None:
    await node.kill(silent=False)
    await node.start()


async def is_lost(_: SingleFaults, node: HostNode) -> None:
    await node.kill(silent=True)


async def has_a_slow_line(_: SingleFaults, node: HostNode) -> None:
    node.link.delay = SLOW


async def has_a_slow_disk(script: SingleFaults, _: HostNode) -> None:
    script.sim.loop.disk = lambda: SLOW


async def control_is_killed(script: SingleFaults, node: HostNode) -> None:
    await control_is_away(script, node, 0.0)


async def control_is_away(script: SingleFaults, _: HostNode, seconds: float | None = None) -> None:
    """Until it is started again, or another control node takes over."""
    sim = script.sim
    sim.store.died.set()
    await sim.end_processes()
    await guard.pause(sim.chance.uniform(0, AWAY) if seconds is None else seconds)
    await sim.restart(0)


OF_CONTROL: list[Fault] = [control_is_killed, control_is_away]
FAULTS: list[Fault] = [
    *(cut_off, cannot_send, cannot_receive, loses_its_line, is_lost_to_control),
    *(is_killed, is_lost, has_a_slow_line, has_a_slow_disk),
    *OF_CONTROL,
]


class SingleFaults(CutOff):
    faults: Sequence[Fault] = FAULTS

    def __init__(self, seed: int, kill: Kill) -> None:
        super().__init__(seed, kill)
        self.sim.patience = PATIENCE
        self.waits: dict[str, float] = {}  # by fault: the longest
        self.excused: dict[str, float] = {}  # of those that are named above

    async def run(self, steps: int) -> Hosts:
        sim = self.sim
        await self.begin()
        for _ in range(steps):
            for fault in self.faults:
                await self.suffer(fault)
        sim.note("end")
        return sim

    async def suffer(self, fault: Fault) -> None:
        sim, chance = self.sim, self.sim.chance
        node = sim.nodes[chance.choice(list(sim.nodes))]
        over = asyncio.Event()
        change = asyncio.ensure_future(self._change())  # noqa: TID251
        await guard.pause(chance.uniform(0, CHANGE))
        hidden = any(n.upstream._staged.changing("sql") for n in sim.nodes.values())
        polls = asyncio.gather(*(self._poll(name, over) for name in MACHINES))
        await fault(self, node)
        await guard.pause(LASTS)
        node.link.delay = 0.0
        sim.loop.disk = lambda: DISK
        await self.heal()
        await self.catch_up()
        await change
        over.set()
        for host, wait in (pair for pairs in await polls for pair in pairs):
            excused = hidden and (host == node.host or fault in OF_CONTROL)
            excused |= fault is has_a_slow_line and host == node.host
            if wait > MAX_WAIT and not excused:
                sim.find("poll-waited", f"{wait:.2f} s on {host}; {fault.__name__}: {node.host}")
            waits = self.excused if excused else self.waits
            waits[fault.__name__] = max(wait, waits.get(fault.__name__, 0.0))
        await self.survive(sim.advance(SECOND))

    async def _change(self) -> None:
        """Schedule an event, or cancel it."""
        sim, started = self.sim, self.sim.loop.time()
        try:
            if events := sim.disk.groups["sql"].events:
                await sim.surviving(sim.node.platform.cancel(events[0].id, "operator"))
            else:
                await sim.operate_reboot("sql-1")
            if (took := sim.loop.time() - started) > LONGEST:
                sim.find("shown-late", f"a change took {took:.2f} s")
        except (Killed, asyncio.CancelledError):
            pass  # control is killed, and the next one shows it

    async def _poll(self, machine: str, over: asyncio.Event) -> list[tuple[str, float]]:
        """Return for how long polls have waited, and on which hosts."""
        sim, waits = self.sim, []
        while not over.is_set():
            placed = sim.machine(machine)
            assert placed is not None
            node, started = sim.nodes[placed.host], sim.loop.time()
            life = node.lives if node.alive else None
            await sim.ask(machine, "GET", NEWEST.name)
            if node.alive and node.lives == life:
                waits.append((placed.host, sim.loop.time() - started))
            await guard.pause(POLL_EVERY)
        return waits

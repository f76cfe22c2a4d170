"""A machine is moved without a report, and polls on its new host, while an event is raised for it,
its time comes, and control is killed. It is not disturbed by what it was not shown, nor unknown for
longer than it takes to believe the move."""

from __future__ import annotations

from forewarn.core import Source
from forewarn.core.time import MINUTE, SECOND
from forewarn.support import guard
from forewarn.wire.versions import NEWEST
from simulation.hosts import CutOff, Hosts
from simulation.script import HOSTS, NAMES

EVERY = 5  # seconds between two polls
POLLS = 20  # on the old host, until its node has reported how often the machine polls
MAX_UNKNOWN = 5  # polls that are not answered: three, and what control takes to look
NOTICE = 15 * MINUTE


class UnreportedMoves(CutOff):
    async def run(self, steps: int) -> Hosts:
        sim, chance = self.sim, self.sim.chance
        await self.begin()
        self.machine = chance.choice(NAMES)
        await self.poll_often(POLLS)
        placed = sim.machine(self.machine)
        assert placed is not None
        sim.strayed[self.machine] = chance.choice([h for h in HOSTS if h != placed.host])
        await self.poll_often(1)
        source = chance.choice([Source.USER, Source.PLATFORM])
        await sim.operate_reboot(self.machine, source)
        if chance.random() < 0.5:
            sim.store.died.set()
            await sim.end_processes()
            await sim.restart(0)
            await self.catch_up()
        if chance.random() < 0.5:
            await self.poll_often(1)
            await sim.advance(NOTICE)
        self.unknown = 0
        while not await self.poll_often(1):
            self.unknown += 1
            if self.unknown > MAX_UNKNOWN:
                sim.find("unanswered", f"{self.machine} on {sim.strayed[self.machine]}")
                break
        for _ in range(steps):
            await self.poll_often(1)
            await sim.advance(NOTICE)
        sim.note("end")
        return sim

    async def poll_often(self, times: int) -> bool:
        """Poll, and return whether the last poll was answered, when the next one is due."""
        for _ in range(times):
            answer = await self.sim.ask(self.machine, "GET", NEWEST.name)
            for _ in range(EVERY):
                await guard.pause(1.0)
                await self.sim.advance(SECOND)
        return bool(answer["status"] == 200)

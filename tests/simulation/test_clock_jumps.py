"""The real service on a wall clock that jumps by minutes and by years, while it runs and while it
is stopped. Its guests know what time it really is, and so does the judge."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.core import Status
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND, Duration
from forewarn.judge import judge
from forewarn.service.engine.clock import Clock, ClockLimits, RealClock
from simulation.script import NAMES, Script
from simulation.world import START, Kill, Simulation
from simulation.wrong_clocks import YEAR, WallTime

STEPS = 60


class WallSimulation(WallTime, Simulation):
    error: Duration = 0

    def make_clock(self) -> Clock:
        return RealClock(lambda: self.at + self.error, lambda: self.at, ClockLimits())

    async def restart(self, away: int) -> None:
        if 0 < self.error <= ClockLimits().downtime:
            self.error = 4 * YEAR  # less would be taken for time in which it was off
        await super().restart(away)

    async def step(self, by: int) -> None:
        """Where the usual script has a step that is followed, one that is not."""
        await self.show(by + YEAR)

    async def show(self, error: Duration) -> None:
        self.error = error
        await self.see_clock()
        self.node.scheduler.reread()
        await self.surviving(self.node.ledger.idle())

    @property
    def trusts(self) -> bool:
        return self.node.writer.now().untrusted is None


class WrongClocks(Script):
    """The usual mix, with clocks that are wrong for a while, and restarts in between."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Kill())
        self.sim: WallSimulation = WallSimulation(seed, Kill())
        self.doubts = 0
        self.left = STEPS

    async def something(self) -> None:
        sim, chance = self.sim, self.sim.chance
        self.left -= 1
        if self.left == 0:  # in the end the clock is right
            await sim.show(0)
            return
        match chance.randrange(12):
            case 0:
                far = [4 * YEAR, -2 * HOUR, -YEAR]
                if sim.trusts:  # else it may be in doubt since its start, and allow for downtime
                    far += [10 * MINUTE, DAY]
                await sim.show(chance.choice(far))
                assert not sim.trusts
                self.doubts += 1
            case 1 | 2:
                await sim.show(0)
                assert sim.trusts
            case 3:
                await sim.stop()
                sim.error = chance.choice([0, 4 * YEAR, -YEAR])
                await sim.restart(chance.choice([SECOND, MINUTE, 20 * MINUTE]))
                assert sim.trusts == (sim.error == 0)
                self.doubts += not sim.trusts
            case 4:
                before = {e.id for e in sim.node.platform.active() if e.status is Status.STARTED}
                trusted = sim.trusts
                await sim.advance(chance.choice([MINUTE, 20 * MINUTE, 2 * HOUR]))
                after = {e.id for e in sim.node.platform.active() if e.status is Status.STARTED}
                assert trusted or after <= before  # nothing starts
            case _:
                await super().something()


@pytest.mark.parametrize("seed", range(8))
def test_no_promise_is_broken_while_the_clock_is_wrong(seed: int) -> None:
    async def body() -> WrongClocks:
        script = WrongClocks(seed)
        await script.run(STEPS)
        return script

    script = asyncio.run(body())
    judgement = judge(script.sim.trace)
    assert judgement.ok, judgement.render()
    assert script.doubts > 0
    for commit in script.sim.disk.commits:
        assert START <= commit.at <= script.sim.at  # nothing is ever dated by a wrong clock
    assert script.left_over == []


def test_after_a_clock_that_was_ahead_is_accepted_nothing_is_early_and_all_goes_on() -> None:
    """Four years ahead from the first start: nobody could know that."""

    async def body() -> WallSimulation:
        script = WrongClocks(7)
        sim = script.sim
        sim.error = 4 * YEAR
        await sim.start()
        for machine in NAMES:
            await script.poll(machine)
        for _ in range(25):
            await Script.something(script)
        await sim.stop()
        sim.error = 0
        sim.trace.clear()  # until here all was done by the wrong clock, and nobody could know
        await sim.restart(MINUTE)
        assert not sim.trusts
        scheduled = {e.id: e for e in sim.node.platform.active() if e.status is Status.SCHEDULED}
        await sim.surviving(sim.node.clock_acceptance.accept("operator"))
        assert sim.trusts
        assert sim.node.writer.now().at == sim.at
        for commit in sim.disk.commits:
            assert commit.at <= sim.at
        assert [r.at for r in sim.disk.timeline] == sorted(r.at for r in sim.disk.history)
        for event in sim.node.platform.active():
            if event.id in scheduled:
                assert event.not_before == scheduled[event.id].not_before
            assert event.raised_at <= sim.at
        for machine in NAMES:
            await script.poll(machine)
        for event in scheduled.values():  # the operator's way out
            await script.operate(sim.node.platform.cancel(event.id, "operator"))
        for _ in range(20):
            await sim.advance(10 * MINUTE)
            await script.poll("web_0")
        assert sim.node.platform.active() == []
        await sim.advance(MINUTE)
        await sim.stop()
        return sim

    sim = asyncio.run(body())
    judgement = judge(sim.trace)
    assert judgement.ok, judgement.render()
